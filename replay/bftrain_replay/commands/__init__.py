"""The commands that replay, compare, sweep and report."""
