"""The rows of `scripts/benchmark.py`, a module for each subject."""
