"""A simulated main scheduler: jobs of an SWF log in, a schedule and the idle nodes that it leaves out."""
