"""The data of a live run: site settings, task records, API schemas, callers."""
