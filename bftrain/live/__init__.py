"""Live: the decision core alongside a running batch scheduler, with real nodes and real training."""
