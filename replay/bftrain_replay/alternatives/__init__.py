"""alternatives."""
