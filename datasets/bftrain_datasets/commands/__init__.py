"""The commands that read, generate, inspect and change logs and tasks."""
