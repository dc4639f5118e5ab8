"""The daemon of a live run, and how it starts."""
