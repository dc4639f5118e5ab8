"""Assessing: what idle nodes of a log are worth a week, how sure that is, and on what it depends."""
