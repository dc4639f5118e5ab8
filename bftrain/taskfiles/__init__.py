"""Task files: tasks as TOML and CSV, and the measured models that they may name."""
