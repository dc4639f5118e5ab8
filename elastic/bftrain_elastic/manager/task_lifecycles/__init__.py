"""Task lifecycles: the logic of one task under one launcher, free of I/O: events in, orders out."""
