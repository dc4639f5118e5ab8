"""Plan: the decision with node names."""

from __future__ import annotations

from collections.abc import Mapping

from bftrain.values import checks
from bftrain.values.mapped import Mapped


class Plan(Mapped, frozen=True, kw_only=True):
    """Which task holds which nodes. Tasks that wait are not named."""

    holdings: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        """Check that no node serves two tasks and that no task is named without nodes."""
        holdings = checks.holdings(self, "holdings")
        owner: dict[str, str] = {}
        for task, nodes in holdings.items():
            if not nodes:
                checks.reject(self, "holdings", f"task '{task}' is named but holds no node")
            for node in nodes:
                if node in owner:
                    checks.reject(self, "holdings", f"node '{node}' serves both '{owner[node]}' and '{task}'")
                owner[node] = task

    @property
    def sizes(self) -> dict[str, int]:
        """The number of nodes of every task that holds some."""
        return {task: len(nodes) for task, nodes in self.holdings.items()}
