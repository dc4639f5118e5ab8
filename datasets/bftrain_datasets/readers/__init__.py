"""One file a format: each is a module with ``name``, ``about``, ``recognises`` and ``read``."""
