"""Immutable values passed between all packages: validated on construction, with an exact JSON form."""
