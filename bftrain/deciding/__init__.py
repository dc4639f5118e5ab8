"""The decision core: events in, actions out. No clock, no file, no socket, no thread."""
