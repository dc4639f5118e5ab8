"""Speeds as policies see them if they are not known exactly: with errors, learnt as tasks run, and completed.

A speed counts as measured once a task has worked on a kind at a size; all speeds of profiled tasks count. Completion
fits a low-rank matrix to the logarithms of the measured speeds, by task and kind, as Gavel's estimator does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from bftrain import speed_estimates
from bftrain.values.curve import SpeedCurve
from bftrain_datasets.workloads.speed_completion import completed
from bftrain_replay.rounds.round_inputs import Ints, TaskGangs
from bftrain_replay.rounds.round_settings import COMPLETED, RoundSettings
from bftrain_replay.simulation.replay_settings import NO
from bftrain_replay.simulation.wrong_speeds import WrongSpeeds

_MOST_ROWS: Final = 500  # completion uses only this many of the latest tasks


class SpeedBeliefs:
    """The tasks as policies see them: ``gangs``, equal to the ``actual`` ones without speed errors."""

    def __init__(self, actual: TaskGangs, settings: RoundSettings) -> None:
        self._actual = self.gangs = actual
        self.learns = settings.learning != NO and settings.speed_error > 0.0
        self._completes = settings.learning == COMPLETED
        if not settings.speed_error:
            return
        wrong = WrongSpeeds(settings.speed_error, settings.profiled, settings.seed)
        self._specs = [wrong.believed(spec) for spec in actual.specs]  # tasks as policies see them now
        self._guessed = tuple(self._specs)  # beliefs before any measurement
        self._profiled = np.array([one is other for one, other in zip(self._specs, actual.specs, strict=True)])
        self._known: dict[int, dict[tuple[int, int], float]] = {}  # measured speeds by task, kind and size
        # Size of each task's latest measurement on each kind
        self._sizes = np.zeros(actual.speeds.shape, dtype=np.intp)
        own = {name: getattr(actual, name).copy() for name in ("nodes", "speeds", "fastest", "best", "batches")}
        self.gangs = replace(actual, specs=self._specs, actual=actual, **own)
        for place in np.flatnonzero(~self._profiled).tolist():
            self.gangs.look_again(place)

    def teaches(self, run: Ints, kind: Ints) -> bool:
        """Return whether a speed of these tasks on these kinds will be learnt."""
        if not self.learns:
            return False
        return bool(((self._sizes[run, kind] != self._actual.nodes[run]) & ~self._profiled[run]).any())

    def learn(self, run: Ints, kind: Ints, now_s: float) -> bool:
        """Record the speeds of tasks that worked; return whether any was new."""
        actual, changed = self._actual, False
        for place, where in zip(run.tolist(), kind.tolist(), strict=True):
            size = int(actual.nodes[place])
            known = self._known.setdefault(place, {})
            if self._profiled[place] or (where, size) in known:
                continue
            self._sizes[place, where], changed = size, True
            known[where, size] = float(actual.speeds[place, where])
            sizes = {nodes: rate for (on, nodes), rate in known.items() if on == where}
            stated = self._guess(place, where)
            self._believe(place, where, speed_estimates.curve(sizes, stated, actual.specs[place].max_nodes) or stated)
        if changed and self._completes:
            self._complete(now_s)
        return changed

    def _guess(self, place: int, where: int) -> SpeedCurve:
        spec = self._guessed[place]
        return spec.curves.get(self.gangs.kinds[where], spec.curve)

    def _believe(self, place: int, where: int, curve: SpeedCurve) -> None:
        spec, kind = self._specs[place], self.gangs.kinds[where]
        more: dict[str, object] = {"curves": {**spec.curves, kind: curve}} if kind in spec.curves else {"curve": curve}
        self._specs[place] = msgspec.structs.replace(spec, **more)
        self.gangs.look_again(place)

    def _complete(self, now_s: float) -> None:
        """Fill in speeds of unmeasured tasks on kinds with measurements of other tasks."""
        gangs = self.gangs
        came = np.searchsorted(gangs.submit_s, now_s, side="right")
        measured = ((self._sizes == gangs.nodes[:, None]) | self._profiled[:, None]) & (gangs.speeds > 0.0)
        rows = np.flatnonzero(measured[:came].any(axis=1))[-_MOST_ROWS:]
        table = np.where(measured[rows], np.log(np.where(measured[rows], gangs.speeds[rows], 1.0)), np.nan)
        guesses = np.log(np.where(gangs.speeds[:came] > 0.0, gangs.speeds[:came], np.nan))
        with np.errstate(invalid="ignore"):
            scale = np.nanmean(guesses - np.nanmean(guesses, axis=1, keepdims=True), axis=0)
        filled = completed(table, np.nan_to_num(scale))
        lacking = np.isnan(table) & measured[rows].any(axis=0) & (gangs.speeds[rows] > 0.0)
        for row, where in np.argwhere(lacking).tolist():
            place, curve = int(rows[row]), self._guess(int(rows[row]), where)
            factor = float(np.exp(filled[row, where])) / curve.speed(int(gangs.nodes[place]))
            self._believe(place, where, curve.times(factor))
