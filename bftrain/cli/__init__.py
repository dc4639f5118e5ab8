"""The command line: one file per command, limited to parsing, calling and printing."""
