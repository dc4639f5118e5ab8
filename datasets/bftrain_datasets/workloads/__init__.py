"""Workloads of neighbouring systems as tasks: Gavel, Philly, Blox, SWF; and tasks generated in their manner."""
