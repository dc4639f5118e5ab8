"""Published experiments, run again: ``bftrain reproduce``. One module for each experiment."""
