"""Workloads of other systems as tasks: Gavel, Philly, Blox, SWF; and generated tasks of the same kinds."""
