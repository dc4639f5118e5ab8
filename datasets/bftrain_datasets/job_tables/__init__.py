"""Tables of jobs: which column means what, the public data sets by name, and their rows as jobs."""
