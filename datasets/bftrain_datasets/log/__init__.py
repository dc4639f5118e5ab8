"""Logs of idle nodes: their one form in memory, their files, measures and edits."""
