"""The error for figures that static drawing does not know how to draw."""

from __future__ import annotations


class UnsupportedFigureError(Exception):
    """A figure uses a part of Vega-Lite that static drawing lacks; Vega has to draw it."""
