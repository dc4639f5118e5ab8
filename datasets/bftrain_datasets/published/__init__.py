"""The published replayer: its log and its task sets, from pickled tables that are read as data."""
