"""Output: summaries and tables of a replay as files, and reading them back."""
