"""A sharing problem in columns, and the way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bftrain.values.sharing import Shares, SharingProblem
from bftrain_solvers.sharing.ways import ShareDemands

if TYPE_CHECKING:
    from bftrain_solvers.sharing.rising import Floats


@dataclass(frozen=True, slots=True)
class ShareColumns:
    """A problem in columns. Kinds that are too few for a task cannot run it; those without nodes are no column."""

    problem: SharingProblem
    kinds: tuple[str, ...]
    market: ShareDemands
    weights: Floats

    @classmethod
    def of(cls, problem: SharingProblem) -> ShareColumns:
        """Give the columns of a problem."""
        # On a log a kind may be away for a while; time on none of its nodes has no price
        kinds, tasks = tuple(kind for kind, count in problem.nodes.items() if count), problem.tasks
        counts = np.array([float(problem.nodes[kind]) for kind in kinds])
        nodes = np.array([float(task.nodes) for task in tasks])
        speeds = np.array([[task.speeds.get(kind, 0.0) for kind in kinds] for task in tasks]).reshape(
            len(tasks), len(kinds)
        )
        speeds[nodes[:, None] > counts] = 0.0
        weights = np.array([task.weight for task in tasks])
        return cls(problem=problem, kinds=kinds, market=ShareDemands(speeds, nodes, counts), weights=weights)

    @property
    def fair(self) -> Floats:
        """What counts as one and the same for all: the speed on a part of every kind, by node used."""
        market = self.market
        fair: Floats = (market.speeds @ market.counts) / market.counts.sum() / market.nodes
        return fair

    @property
    def alone(self) -> Floats:
        """The shares of each task if it had the n-th part of every kind for itself."""
        market = self.market
        shares = np.where(market.speeds > 0.0, market.counts / market.nodes[:, None] / len(market.nodes), 0.0)
        alone: Floats = shares / np.maximum(1.0, shares.sum(axis=1, keepdims=True))
        return alone

    def speeds(self, shares: Floats) -> Floats:
        """Give the speeds that shares come to."""
        speeds: Floats = (self.market.speeds * shares).sum(axis=1)
        return speeds

    def answer(self, policy: str, shares: Floats, value: float, value_is: str) -> Shares:
        """Return shares by name."""
        by_name = {}
        for task, row in zip(self.problem.tasks, shares.tolist(), strict=True):
            by_name[task.name] = {kind: share for kind, share in zip(self.kinds, row, strict=True) if share > 0.0}
        speeds = dict(zip(by_name, self.speeds(shares).tolist(), strict=True))
        return Shares(policy=policy, value=value, value_is=value_is, shares=by_name, speeds=speeds)
