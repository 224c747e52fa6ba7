"""Linear bandits step by step: ridge regression over many agents, confidence widths, and when to communicate."""
