"""Runs: the settings, provenance, figures and tables of one run, in memory and in its folder."""
