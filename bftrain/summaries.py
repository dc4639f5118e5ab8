"""Summaries: figures as plain values with what they were made with, and a sum over all that repeats."""

from __future__ import annotations

import hashlib
import platform
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from bftrain.values import wire
from bftrain.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def versions() -> dict[str, str]:
    """Give the versions of what any figures depend on."""
    return {"bftrain": __version__, "python": platform.python_version(), "numpy": np.__version__}


def with_sum(summary: Mapping[str, Any], measured: Collection[str]) -> dict[str, Any]:
    """Add ``figures_sha256``, over all but what a real clock ``measured``: the same inputs give the same."""
    return {**summary, "figures_sha256": hashlib.sha256(wire.encode(lasting(summary, measured))).hexdigest()}


def lasting(summary: Mapping[str, Any], measured: Collection[str]) -> dict[str, Any]:
    """Return ``summary`` without what is ``measured``, at any depth."""
    return {
        name: lasting(value, measured) if isinstance(value, dict) else value
        for name, value in summary.items()
        if name not in measured
    }


def in_json(summary: Mapping[str, Any]) -> str:
    """Write a summary as people read it."""
    return f"{msgspec.json.format(wire.encode(summary), indent=2).decode()}\n"
