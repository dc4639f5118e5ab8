"""Metrics: what a run means for its tasks and for those who handed them in: how long, how fair, how punctual."""
