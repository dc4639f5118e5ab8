"""Reporting: a replay, in memory or in its folder, as pictures and as one page for people."""
