"""Task files: tasks as TOML and CSV, and the measured model profiles that they refer to."""
