"""Summaries: figures as plain values with their inputs, and a checksum over all reproducible ones."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import numpy as np

from bftrain.values import wire
from bftrain.version import __version__


def versions() -> dict[str, str]:
    """Return the versions of the software that any figures depend on."""
    return {"bftrain": __version__, "python": platform.python_version(), "numpy": np.__version__}


def with_sum(summary: Mapping[str, Any], measured: Collection[str]) -> dict[str, Any]:
    """Add ``figures_sha256``, over all except the ``measured`` times: equal inputs have equal checksums."""
    return {**summary, "figures_sha256": hashlib.sha256(wire.encode(without_measured(summary, measured))).hexdigest()}


def without_measured(summary: Mapping[str, Any], measured: Collection[str]) -> dict[str, Any]:
    """Return ``summary`` without the keys in ``measured``, at any depth."""
    return {
        name: without_measured(value, measured) if isinstance(value, dict) else value
        for name, value in summary.items()
        if name not in measured
    }


def to_json(summary: Mapping[str, Any]) -> str:
    """Return a summary as indented JSON."""
    return f"{msgspec.json.format(wire.encode(summary), indent=2).decode()}\n"
