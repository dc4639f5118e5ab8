"""Logs of idle nodes: their form in memory, files, measures and edits."""
