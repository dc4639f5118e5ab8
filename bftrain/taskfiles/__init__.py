"""taskfiles."""
