"""Plug-ins as other packages might bring them, good and bad; tests register them as fake entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from bftrain import Availability, registry
from tests.unit.core import parts

HERE = __name__

dice = parts.Scripted(parts.dice(1), name="dice")
name = "this-module"


def solve(table: object, limits: object) -> None:
    """Make this module a solver by itself."""


def available() -> Availability:
    """Say that it can run."""
    return Availability(ok=True, version="module 1.0")


class Missing:
    """A solver whose licence is missing."""

    name = "missing"
    solve = dice.solve

    def available(self) -> Availability:
        return Availability(ok=False, reason="no licence", fix="buy one")


class Rude(Missing):
    """A solver that cannot even say whether it is there."""

    def available(self) -> Availability:
        raise OSError("libfoo.so.3: cannot open shared object file")


class Mute(Missing):
    """A solver that says nothing."""

    def available(self) -> Availability:
        return None  # type: ignore[return-value]  # that is its fault


missing, rude, mute = Missing(), Rude(), Mute()
no_solver = object()


class _Package:
    name = "someones-package"


def register(monkeypatch: pytest.MonkeyPatch, *entries: tuple[str, str, str]) -> None:
    """Pretend that ``(port, name, target)`` are entry points of an installed package."""
    points = []
    for port, entry, target in entries:
        point = EntryPoint(name=entry, value=target, group=f"bftrain.{port}")
        vars(point)["dist"] = None if entry == "homeless" else _Package()
        points.append(point)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point for point in points if point.group == group])
