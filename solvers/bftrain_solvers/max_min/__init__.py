"""Raising the worst-off first, over nodes that are alike: a search over sizes, no programme."""
