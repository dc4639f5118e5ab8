"""Schedulers: how a live run learns which nodes it may use, and starts its agents on them."""
