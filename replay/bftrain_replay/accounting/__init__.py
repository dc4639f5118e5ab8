"""Accounting of a simulation while it runs, to the node-second."""
