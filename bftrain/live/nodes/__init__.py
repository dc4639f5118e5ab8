"""The nodes of a live run: usable, joining and leaving nodes."""
