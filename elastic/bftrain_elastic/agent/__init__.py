"""The agent of a node: starts workers, relays messages, and cleans up processes."""
