"""Settings of a replay: those of the decision core, and those that need a virtual clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypedDict

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from bftrain.config import Settings
from bftrain.deciding.node_stay import AUTO, HORIZON_S
from bftrain.values import checks
from bftrain.values.sharing import Entity
from bftrain_replay.simulation.progress_kept import FORMS, MEMORY, TASK, ProgressKept, agreed

REALISTIC: Final = "realistic"
PUBLISHED: Final = "published"
SEMANTICS: Final = (REALISTIC, PUBLISHED)

ALL: Final = "all"
CHOSEN: Final = "chosen"
EVENTS: Final = (ALL, CHOSEN)

MEASURED: Final = "measured"

YES: Final = "yes"
NO: Final = "no"

_REFUSED_BY_PUBLISHED: Final = (
    *("decision_latency_s", "min_interval_s", "start_cost_s", "checkpoint_interval_s", "speed_error"),
)
_LARGEST_ERROR: Final = 10.0  # speeds stay finite


class ReplaySettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a replay. With these and the same log and tasks, figures repeat (docs/explanation/semantics.md).

    ``decision_latency_s`` is a number of seconds, or ``"measured"``: as long as the solver took, which differs from
    machine to machine. ``grow_cost_s``, ``shrink_cost_s`` and ``start_cost_s`` override those of every task, and
    ``cost_factor`` multiplies all three. ``progress`` says what a preemption takes back: ``memory`` (the default),
    ``memory:S``, ``disk:S`` or ``task``, and ``None`` by the published rules, which say it themselves;
    ``checkpoint_interval_s = S`` is another way to say ``disk:S``, and is ``None`` once it was read.
    """

    semantics: str = REALISTIC  # by which rules tasks advance
    events: str = ALL  # published rules: decide at all events of the log, or at those that change the chosen nodes
    window: str = ""  # A..B, seconds UTC or ISO times
    nodes: str = ""  # a node set, or a slice in the log's own order; "" for all
    skip_events: int = 0  # events at the window's begin that are left out
    decision_latency_s: float | str = 0.0  # from an event until new sizes take effect
    min_interval_s: float = 0.0  # between decisions
    grow_cost_s: float | None = None
    shrink_cost_s: float | None = None
    start_cost_s: float | None = None
    cost_factor: float = 1.0  # what every task's costs are multiplied with
    progress: str | None = None
    checkpoint_interval_s: float | None = None
    speed_error: float = 0.0  # standard deviation of the logarithm of the factor by which decisions mistake a speed
    profiled: float = 0.0  # share of the tasks with exactly known speeds
    learning: str = NO  # whether decisions learn the true speed of sizes at which a task has run
    seed: int = 0  # seed of all random choices: of the errors of speeds
    metrics: str = ""  # more figures than every replay has: names of metrics, or FILE.py:NAME, with commas between

    def __post_init__(self) -> None:
        """Validate all fields, and raise for settings that the chosen rules do not know."""
        super().__post_init__()
        checks.one_of(self, "semantics", SEMANTICS)
        checks.one_of(self, "events", EVENTS)
        for name in ("window", "nodes", "metrics"):
            if getattr(self, name) != "":
                checks.text(self, name)
        checks.integer(self, "skip_events", at_least=0)
        if isinstance(self.decision_latency_s, str):
            checks.instead_of_seconds(self, "decision_latency_s", MEASURED)
        else:
            checks.number(self, "decision_latency_s", at_least=0.0)
        checks.number(self, "min_interval_s", at_least=0.0)
        for cost in ("grow_cost_s", "shrink_cost_s", "start_cost_s"):
            if getattr(self, cost) is not None:
                checks.number(self, cost, at_least=0.0)
        checks.number(self, "cost_factor", at_least=0.0)
        checks.optional_number(self, "checkpoint_interval_s", above=0.0)
        check_errors(self, (YES, NO))
        checks.integer(self, "seed", at_least=0)
        if self.semantics == PUBLISHED:
            _as_published(self)
            for name in _REFUSED_BY_PUBLISHED:
                if getattr(self, name) not in (None, 0.0):
                    checks.reject(self, name, "is unknown to the published rules", "leave it out, or replay realistic")
        elif self.events != ALL:
            checks.reject(self, "events", "is for the published rules only", "leave it out, or replay published")
        _progress(self)

    @property
    def progress_kept(self) -> ProgressKept | None:
        """The way in which tasks keep their progress; ``None`` by the published rules."""
        return None if self.progress is None else ProgressKept.parse(self.progress)

    @classmethod
    def progress_in(cls, settings: Settings) -> str | None:
        """Return the setting ``progress``; of settings that are not of a replay, that tasks say it themselves."""
        return settings.progress if isinstance(settings, cls) else TASK

    @classmethod
    def of(cls, settings: Settings) -> ReplaySettings:
        """Return ``settings`` as those of a replay; missing fields have their defaults."""
        return settings if isinstance(settings, cls) else cls(**msgspec.structs.asdict(settings))


def check_errors(settings: Struct, learning: tuple[str, ...]) -> None:
    """Check what decisions know of speeds, and that they learn in one of the ways of ``learning``."""
    checks.number(settings, "speed_error", "profiled", at_least=0.0)
    for name, most in (("speed_error", _LARGEST_ERROR), ("profiled", 1.0)):
        if getattr(settings, name) > most:
            checks.reject(settings, name, f"must be at most {most:g}, not {getattr(settings, name):g}")
    checks.one_of(settings, "learning", learning)


def _as_published(settings: ReplaySettings) -> None:
    if settings.horizon_s == AUTO:
        force_setattr(settings, "horizon_s", HORIZON_S)
    if settings.placement == AUTO:
        force_setattr(settings, "placement", "grouped")
    force_setattr(settings, "turn_s", 0.0)


def _progress(settings: ReplaySettings) -> None:
    """Normalise how progress is kept; an unset default gives way to an explicit setting."""
    given = settings.progress
    if settings.semantics == PUBLISHED:
        if given not in {None, MEMORY}:
            fix = "leave it out, or replay realistic"
            checks.reject(settings, "progress", "is unknown to the published rules", fix)
        force_setattr(settings, "progress", None)
        return
    if settings.checkpoint_interval_s is not None:
        chosen = None if given == MEMORY else given
        both = {"progress": chosen, "checkpoint_interval_s": settings.checkpoint_interval_s}
        given = agreed(both)["progress"]
        force_setattr(settings, "checkpoint_interval_s", None)
    try:
        force_setattr(settings, "progress", ProgressKept.parse(MEMORY if given is None else given).text)
    except (ValueError, AttributeError):
        fix = f"write {FORMS}, such as disk:300"
        checks.reject(settings, "progress", f"is {given!r}", fix)


class ReplayOptions(TypedDict, total=False):
    """Each field of ``ReplaySettings`` but ``objective``, which may also be a function; a test keeps them alike."""

    solver: str
    fallback: str
    admission: str
    placement: str
    horizon_s: float | str
    turn_s: float
    max_tasks: int
    solver_deadline_s: float
    solver_gap: float
    solver_threads: int
    max_failures: int
    entities: Mapping[str, Entity]
    prices: Mapping[str, float]
    racks: Mapping[str, str]
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
    speed_error: float
    profiled: float
    learning: str
    seed: int
    metrics: str


# A replay always writes all of these, so a file without one of them was written by hand and means today's defaults
_ALWAYS_WRITTEN: Final = ("solver", "max_tasks", "semantics", "events", "decision_latency_s", "cost_factor", "seed")
_SAY_HOW: Final = ("progress", "checkpoint_interval_s")


def note_on_progress(written: Mapping[str, object]) -> str:
    """Return a warning if a replay wrote these settings before ``progress`` was one of them; otherwise nothing.

    >>> note_on_progress({"solver": "greedy"})
    ''
    """
    whole = all(name in written for name in _ALWAYS_WRITTEN)
    if not whole or written["semantics"] == PUBLISHED or any(name in written for name in _SAY_HOW):
        return ""
    return (
        f"these settings are of an earlier version and do not say how progress is kept: it was as the tasks say, and "
        f"is now in memory (--progress {MEMORY}), so the figures differ; --progress {TASK} gives those of then"
    )
