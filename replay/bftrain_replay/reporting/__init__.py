"""Reports: a replay, in memory or in its folder, as charts and as one page."""
