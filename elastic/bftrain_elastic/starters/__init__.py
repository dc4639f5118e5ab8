"""Starters: programs that agents run, each in a process of its own."""
