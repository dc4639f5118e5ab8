"""Simulation: a log and tasks on a virtual clock, by the rules of the settings."""
