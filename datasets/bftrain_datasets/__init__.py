"""Datasets: the idle-node log that everything replays, its files, generators, and task files."""
