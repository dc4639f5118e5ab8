"""Results: the figures of a replay, its tasks, campaigns and warnings."""
