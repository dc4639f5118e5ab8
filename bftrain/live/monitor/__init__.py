"""Monitoring of a live run: its history, its latest events, and the stream of changes."""
