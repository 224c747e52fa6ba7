"""Experiments as data: trials, folders, results, statistics."""
