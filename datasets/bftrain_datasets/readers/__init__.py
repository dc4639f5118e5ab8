"""Readers, one file per format: each is a module with ``name``, ``about``, ``recognises`` and ``read``."""
