"""Hooks that a scheduler runs when jobs start and end. These files are copied to its folders, not imported."""
