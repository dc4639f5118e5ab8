"""Speeds of pairs that policies believe where speeds are not known exactly: with errors, learnt, and completed.

The estimated slowdown of a task that shares its nodes with another one: the kept fraction of its single speed, by
model, gang, partner and kind. Completion fits a low-rank matrix to the logarithms of these fractions, by model and by
partner on a kind, as Gavel's estimator does from profiled pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from bftrain.values.sharing import PairSpeeds
from bftrain_datasets.workloads.speed_completion import completed
from bftrain_replay.rounds.round_inputs import Floats, PairTable, TaskGangs, model_of
from bftrain_replay.simulation.wrong_speeds import WrongSpeeds


class BelievedPairs(PairTable):
    """Pairs of the tasks of ``actual`` as policies see them; ``alone`` are the speeds alone that they believe.

    Arrays are by pair of models, kind, and task of the pair.
    """

    def __init__(self, actual: TaskGangs, alone: Floats, wrong: WrongSpeeds, *, completes: bool) -> None:
        super().__init__("")
        self._actual, self._alone, self._completes = actual, alone, completes
        self._kinds = tuple(kind or "node" for kind in actual.kinds)
        models = (model_of(spec.name) for spec in actual.specs)
        self._gangs = list(zip(models, actual.nodes.tolist(), strict=True))
        among = actual.pairs.among(set(self._gangs))
        self._rows: dict[tuple[str, str, int], int] = {}
        for row, pair in enumerate(among):
            self._rows[min(pair.models), max(pair.models), pair.nodes] = row
        shape = len(self._rows), len(self._kinds), 2
        self._speeds, self._factors = np.zeros(shape), np.ones(shape)  # true pair speeds, and their error factors
        self._known = np.zeros(shape[:2], dtype=bool)
        for (first, second, nodes), row in self._rows.items():
            for column, kind in enumerate(self._kinds):
                self._speeds[row, column] = actual.pairs.speeds(first, second, nodes, kind)
                drawn = wrong.of_pair(first, second, str(nodes), kind)
                self._known[row, column] = drawn is None
                self._factors[row, column] = drawn or (1.0, 1.0)
        self._find_cells()
        self._complete()

    def between(
        self, names: Sequence[str], nodes: Sequence[int], places: Sequence[int]
    ) -> tuple[list[str], tuple[PairSpeeds, ...]]:
        """Return each task as a separate model, and the assumed pair speeds.

        Sharing is never assumed to speed up a task.
        """
        del nodes
        tasks = sorted(zip(places, names, strict=True), key=lambda task: self._gangs[task[0]])
        every = ((one, other) for number, other in enumerate(tasks) for one in tasks[:number])
        both = [(one, other) for one, other in every if self._row(one[0], other[0]) >= 0]
        two = np.array([(one[0], other[0]) for one, other in both], dtype=np.intp).reshape(-1, 2)
        row = np.array([self._row(*places) for places in two.tolist()], dtype=np.intp)
        true, alone = self._speeds[row], self._actual.speeds[two].transpose(0, 2, 1)
        kept = np.minimum(true * self._factors[row], np.maximum(true, alone))
        kept *= np.divide(self._alone[two].transpose(0, 2, 1), alone, out=np.ones(alone.shape), where=alone > 0.0)
        found = tuple(
            PairSpeeds(
                models=(one[1], other[1]),
                nodes=self._gangs[one[0]][1],
                speeds=dict(zip(self._kinds, map(tuple, speeds), strict=True)),
            )
            for (one, other), speeds in zip(both, kept.tolist(), strict=True)
        )
        return list(names), found

    def learn(self, pairs: Iterable[tuple[int, int, int]]) -> bool:
        """Take in pairs of tasks that ran, each with the number of the kind; return whether one was not known."""
        ran = [(row, kind) for one, other, kind in pairs if (row := self._row(one, other)) >= 0]
        new = [each for each in ran if not self._known[each]]
        for each in new:
            self._known[each], self._factors[each] = True, 1.0
        if new:
            self._complete()
        return bool(new)

    def _row(self, one: int, other: int) -> int:
        """Return the row of a pair of tasks; -1 if the pair is unknown."""
        (first, nodes), (second, others) = sorted((self._gangs[one], self._gangs[other]))
        return self._rows.get((first, second, nodes), -1) if nodes == others else -1

    def _find_cells(self) -> None:
        """Set the matrix position and the log of the kept fraction, for both tasks of each pair."""
        task_of = {gang: place for place, gang in enumerate(self._gangs)}
        models, company = {gang: row for row, gang in enumerate(task_of)}, dict[str, int]()
        self._cells = np.zeros((2, *self._speeds.shape), dtype=np.intp)
        alone, kinds = np.zeros(self._speeds.shape), np.arange(len(self._kinds))
        for (first, second, nodes), row in self._rows.items():
            for side, (own, beside) in enumerate(((first, second), (second, first))):
                self._cells[0, row, :, side] = models[own, nodes]
                self._cells[1, row, :, side] = kinds + kinds.size * company.setdefault(beside, len(company))
                alone[row, :, side] = self._actual.speeds[task_of[own, nodes]]
        there = (alone > 0.0) & (self._speeds > 0.0)
        self._part = np.log(np.divide(self._speeds, alone, out=np.full(alone.shape, np.nan), where=there))
        self._shape = len(models), kinds.size * len(company)

    def _complete(self) -> None:
        """Fill in parts that were not measured, of models that were, in company that was."""
        table = np.full(self._shape, np.nan)
        table[tuple(self._cells[:, self._known])] = self._part[self._known]
        seen = ~np.isnan(table)
        if not (self._completes and seen.any()):
            return
        rows, columns = seen.any(axis=1), seen.any(axis=0)
        means = np.where(seen, table, 0.0).sum(axis=0)[columns] / seen.sum(axis=0)[columns]
        filled = np.full(self._shape, np.nan)
        filled[np.ix_(rows, columns)] = completed(table[np.ix_(rows, columns)], means)
        factors = np.exp(filled[tuple(self._cells)] - self._part)
        self._factors = np.where(self._known[:, :, None] | np.isnan(factors), self._factors, factors)
