"""Comparing: the figures of several replays side by side, and the differences in their inputs."""
