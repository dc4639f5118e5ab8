"""Tables of jobs: the meaning of columns, the public data sets by name, and rows as jobs."""
