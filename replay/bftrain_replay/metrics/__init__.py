"""Metrics of a run for its tasks and users: completion times, fairness, deadlines."""
