"""Comparing: the figures of several replays side by side, and what differs in how they were made."""
