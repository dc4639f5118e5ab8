"""Sharing: policies that divide the time of several kinds of nodes."""
