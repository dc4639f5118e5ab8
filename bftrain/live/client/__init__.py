"""The client of a live run: requests, and the stream of changes."""
