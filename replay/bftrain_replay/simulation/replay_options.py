"""The settings of a replay as keyword arguments, so that editors complete them and type checkers know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bftrain.values.sharing import Entity


class ReplayOptions(TypedDict, total=False):
    """Each field of ``ReplaySettings`` but ``objective``, which may also be a function; a test keeps them alike."""

    solver: str
    fallback: str
    admission: str
    placement: str
    horizon_s: float | str
    max_tasks: int
    solver_deadline_s: float
    solver_gap: float
    solver_threads: int
    max_failures: int
    entities: Mapping[str, Entity]
    prices: Mapping[str, float]
    semantics: str
    events: str
    window: str
    nodes: str
    skip_events: int
    decision_latency_s: float | str
    min_interval_s: float
    grow_cost_s: float | None
    shrink_cost_s: float | None
    start_cost_s: float | None
    cost_factor: float
    progress: str | None
    checkpoint_interval_s: float | None
    seed: int
    metrics: str
