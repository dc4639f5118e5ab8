"""The tasks of a live run: their records, their launchers, their progress."""
