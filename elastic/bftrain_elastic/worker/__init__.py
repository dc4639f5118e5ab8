"""The worker: a training script in its process, its state, and its process groups."""
