"""Speeds that change while a task trains: a table of curves by model and share of the work done.

With a growing gradient noise scale, larger batches pay off later in training, so a task gains more from many nodes
then. A table row is ``model,from,nodes,rate``: from this fraction of its work, the model's speed on that many nodes.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from bftrain.errors import BadInput
from bftrain.values.curve import SpeedCurve
from bftrain_replay.rounds.round_inputs import Floats, Places, TaskGangs, model_of

COLUMNS: Final = ("model", "from", "nodes", "rate")

Phases = tuple[tuple[float, SpeedCurve], ...]  # (fraction of the work done, curve valid from there), ascending


class TrainingPhases:
    """Switches each task to the curve of its current phase. Tasks of models that the table lacks keep their curve."""

    def __init__(self, file: str, gangs: TaskGangs) -> None:
        table = _table(Path(file)) if file else {}
        self.any = bool(table)
        self._gangs = gangs
        self._phases = [table.get(model_of(spec.name), ()) for spec in gangs.specs]
        self._number = np.full(len(gangs), -1, dtype=np.intp)
        self._ends: Floats = np.full(len(gangs), -np.inf)  # remaining work at which the phase is complete
        for place in range(len(gangs)):
            self._enter(place, gangs.work[place])

    def advance(self, places: Places, left: Floats) -> bool:
        """Switch the tasks that have reached their next phase; return whether any did."""
        due = places[(left[places] <= self._ends[places]) & (left[places] > 0.0)]
        for place in due.tolist():
            self._enter(place, left[place])
        return bool(due.size)

    def _enter(self, place: int, left: float) -> None:
        phases, work, number = self._phases[place], self._gangs.work[place], self._number[place] + 1
        if number >= len(phases):
            return
        while number + 1 < len(phases) and left <= (1.0 - phases[number + 1][0]) * work:
            number += 1
        self._number[place] = number
        self._ends[place] = (1.0 - phases[number + 1][0]) * work if number + 1 < len(phases) else -np.inf
        self._gangs.set_curve(place, phases[number][1])


def _table(path: Path) -> Mapping[str, Phases]:
    points: dict[str, dict[float, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                points[row["model"]][float(row["from"])][int(row["nodes"])] = float(row["rate"])
        found = {
            model: tuple((share, _curve(curves[share])) for share in sorted(curves)) for model, curves in points.items()
        }
    except OSError as error:
        raise BadInput(str(error.strerror), where=str(path), fix="name a table of phases") from error
    except (KeyError, ValueError, TypeError) as error:
        fix = f"write a CSV table with the columns {','.join(COLUMNS)}"
        raise BadInput(f"is not a table of phases: {error}", where=str(path), fix=fix) from error
    for model, phases in found.items():
        if phases[0][0] != 0.0 or phases[-1][0] >= 1.0:
            what = f"phases of '{model}' begin at {phases[0][0]:g} and end with {phases[-1][0]:g}"
            raise BadInput(what, where=str(path), fix="write shares from 0 to below 1, the first 0")
    return found


def _curve(points: Mapping[int, float]) -> SpeedCurve:
    nodes = tuple(sorted(points))
    return SpeedCurve(nodes=nodes, rate=tuple(points[size] for size in nodes))
