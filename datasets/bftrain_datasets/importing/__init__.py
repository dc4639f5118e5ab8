"""Conversion of a scheduler's records to a log: open, recognise, read, count every doubt, and build."""
