"""Accounting: what a simulation books while it runs, to the node-second."""
