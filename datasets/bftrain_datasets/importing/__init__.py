"""From what a scheduler wrote to a log: open, recognise, read, count every doubt, and build."""
