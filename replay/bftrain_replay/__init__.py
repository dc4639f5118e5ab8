"""Replay: a recorded log on a virtual clock, every idle node-second and every lost sample accounted for."""
