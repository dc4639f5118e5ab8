"""Live: the decision core beside a running batch scheduler, with real nodes and real training."""
