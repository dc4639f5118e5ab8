"""The agent of a node: starts workers, passes messages on, and ends what is left."""
