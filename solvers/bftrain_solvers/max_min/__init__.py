"""Exact search for objectives that raise the worst-off task first, on one kind of nodes and on several."""
