"""Schedulers: how live mode learns which nodes it may use, and gets its agents onto them."""
