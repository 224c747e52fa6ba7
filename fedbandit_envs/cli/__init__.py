"""The command `fedbandit`: one file for each command."""
