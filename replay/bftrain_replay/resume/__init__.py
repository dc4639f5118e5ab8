"""Resuming: solver answers kept on disk, and the events of a journal."""
