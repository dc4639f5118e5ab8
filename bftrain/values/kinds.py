"""Node kinds: nodes of one kind are alike to every task, those of another may be faster, slower or of no use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from bftrain.values.curve import SpeedCurve

ANY_KIND: Final = ""  # of nodes of which no kind is told


class Runs(Protocol):
    """Whatever has speeds by kind."""

    @property
    def curve(self) -> SpeedCurve:
        """Speed where no kinds are told apart."""
        ...

    @property
    def curves(self) -> Mapping[str, SpeedCurve]:
        """Speed by kind; empty if kinds do not matter."""
        ...


def curve_on(task: Runs, kind: str) -> SpeedCurve | None:
    """Give the speed on nodes of ``kind``, for those of no kind ``curve``; ``None`` if the task does not run there."""
    if not task.curves:
        return task.curve
    return task.curves.get(kind, task.curve if kind == ANY_KIND else None)
