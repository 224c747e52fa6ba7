"""The contract of policies: all that a policy may import."""
