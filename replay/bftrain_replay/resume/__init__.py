"""Resuming: the answers of solvers kept on disk, and the events of a journal."""
