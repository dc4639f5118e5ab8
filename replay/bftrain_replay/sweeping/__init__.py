"""Sweeps: many replays that differ in a few options, made side by side, and one table of them."""
