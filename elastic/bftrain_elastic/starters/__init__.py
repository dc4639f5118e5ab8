"""Starters: programs that agents run, each in a separate process."""
