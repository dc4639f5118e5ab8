"""Replay: simulates a recorded log on a virtual clock, and accounts for every idle node-second and lost sample."""
