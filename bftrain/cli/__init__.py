"""The command line: one file a command; nothing but parsing, calling and printing."""
