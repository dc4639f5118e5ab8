"""Golden tests: recorded outputs of the commands, reduced to what a change of behaviour alters."""
