"""The commands that start a live run, ask it, or try a script."""
