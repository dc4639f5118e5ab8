"""Hooks that a scheduler runs when jobs start and end: copied to the scheduler's files, not imported."""
