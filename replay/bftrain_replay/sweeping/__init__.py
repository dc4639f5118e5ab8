"""Sweeps: many replays that differ in a few options, run side by side, with one table of results."""
