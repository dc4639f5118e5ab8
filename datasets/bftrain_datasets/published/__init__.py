"""The published replayer: its log and its task sets, out of pickled tables that are read as data."""
