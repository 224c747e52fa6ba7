"""fedbandit-envs."""
