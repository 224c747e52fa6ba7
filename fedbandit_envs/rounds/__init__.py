"""The communication rounds through which every policy meets an environment."""
