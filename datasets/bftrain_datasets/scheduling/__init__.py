"""A simulated main scheduler: from the jobs of an SWF log to a schedule and its idle nodes."""
