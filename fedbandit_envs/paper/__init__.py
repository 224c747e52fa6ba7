"""The paper's evaluation and what goes beyond it; only the command line imports this."""
