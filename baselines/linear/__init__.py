"""Linear bandits that decide at each step, alone or by sharing what they have seen: one file for each system."""
