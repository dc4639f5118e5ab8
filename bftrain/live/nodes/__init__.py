"""The nodes of a live run: which are usable, and what joins and leaves."""
