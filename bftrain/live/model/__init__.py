"""The data of a live run: site settings, task records, API schemas and callers; and slow calls in threads."""
