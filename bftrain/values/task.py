"""TaskSpec: the description of an elastic training task at its submission."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from bftrain.values import checks
from bftrain.values.batch_scaling import BatchScaling, check_batch
from bftrain.values.curve import SpeedCurve, curve_on
from bftrain.values.resources import ResourceSpeeds
from bftrain.values.spread import SpreadSpeeds
from bftrain.values.wire import NOTHING, Mapped


class TaskSpec(Mapped, frozen=True, kw_only=True):
    """One elastic training job.

    It runs on any number of nodes from ``min_nodes`` to ``max_nodes`` and is finished after ``work_samples``
    (``None``: never). Growing and shrinking cost ``grow_cost_s`` and ``shrink_cost_s``
    seconds at the old speed, starting from zero ``start_cost_s`` seconds at the new speed. ``submit_s`` and
    ``deadline_s`` are times on the clock of the events.

    ``curve`` is its speed on nodes of any kind. With ``curves`` it runs only on nodes of the listed kinds,
    at the given speeds, and on a single kind at a time; ``curve`` then represents it where no kind is specified.
    ``batch`` contains the allowed batch sizes, for the objective ``goodput``. ``spread`` describes the speed if the
    nodes lie on more places than necessary, such as GPUs on two hosts. ``resources`` contains its speed by CPU cores
    and memory per node, for rounds.
    """

    name: str
    curve: SpeedCurve
    curves: Mapping[str, SpeedCurve] = NOTHING
    min_nodes: int = 1
    max_nodes: int
    work_samples: float | None = None
    submit_s: float = 0.0
    grow_cost_s: float = 0.0
    shrink_cost_s: float = 0.0
    start_cost_s: float = 0.0
    weight: float = 1.0
    deadline_s: float | None = None
    user: str = ""
    campaign: str = ""
    batch: BatchScaling | None = None
    spread: SpreadSpeeds | None = None
    resources: ResourceSpeeds | None = None

    def __post_init__(self) -> None:
        checks.text(self, "name")
        checks.instance(self, "curve", SpeedCurve)
        checks.mapped(self, "curves", SpeedCurve)
        checks.bounds(self)
        checks.optional_number(self, "work_samples", above=0.0)
        checks.number(self, "submit_s")
        checks.number(self, "grow_cost_s", "shrink_cost_s", "start_cost_s", "weight", at_least=0.0)
        checks.optional_number(self, "deadline_s")
        checks.optional_text(self, "user", "campaign")
        check_batch(self, self.batch, self.max_nodes)
        checks.instance(self, "spread", SpreadSpeeds | None)
        checks.instance(self, "resources", ResourceSpeeds | None)

    def __hash__(self) -> int:
        return hash((self.name, self.curve))

    def curve_on(self, kind: str) -> SpeedCurve | None:
        """Return the task's speed on nodes of ``kind``, or ``None`` if the task does not run there."""
        return curve_on(self.curve, self.curves, kind)


def with_places(tasks: Iterable[TaskSpec], largest: Callable[[], int | None]) -> tuple[TaskSpec, ...]:
    """Return the tasks with the size of the largest place, where they have speeds by places but omit that size."""
    tasks = tuple(tasks)
    if not any(spec.spread is not None and spec.spread.per_place is None for spec in tasks):
        return tasks
    most = largest()

    def placed(spread: SpreadSpeeds | None) -> SpreadSpeeds | None:
        return spread if spread is None or spread.per_place is not None else replace(spread, per_place=most)

    return tuple(replace(spec, spread=placed(spec.spread)) for spec in tasks)
