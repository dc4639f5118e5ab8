"""The manager: connections to agents, launchers, and the lifecycle of each task."""
