"""Golden tests: recorded outputs of all commands and Python entry points, normalized so that only a change of behaviour shows."""
