"""Fed-CI: inferring the hidden context."""
