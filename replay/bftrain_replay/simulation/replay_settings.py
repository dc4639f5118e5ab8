"""Replay settings: the decision core's, and additional ones that need a virtual clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from msgspec.structs import force_setattr

from bftrain.config import Settings, changed
from bftrain.values import checks
from bftrain.values.options import AUTO, HORIZON_S, Option
from bftrain_replay.simulation.progress_kept import FORMS, MEMORY, TASK, ProgressKept

REALISTIC: Final = "realistic"
PUBLISHED: Final = "published"
SEMANTICS: Final = (REALISTIC, PUBLISHED)

ALL: Final = "all"
CHOSEN: Final = "chosen"
EVENTS: Final = (ALL, CHOSEN)

MEASURED: Final = "measured"

YES: Final = "yes"
NO: Final = "no"

LONGEST_S: Final = 1e12  # maximum duration of a start or a round

_ONLY_REALISTIC: Final = ("decision_latency_s", "min_interval_s", "start_cost_s", "speed_error")
_UNKNOWN_TO_PUBLISHED: Final = "is unknown to the published rules"
_USE_REALISTIC: Final = "omit it, or use --semantics realistic"
_COST: Final = "the tasks' values"

# Settings shared with rounds
Window: TypeAlias = Annotated[
    str, Option("Only A:B: seconds UTC or ISO times, either may be empty; or such as last-2w, first-12h")
]
Nodes: TypeAlias = Annotated[
    str, Option("Nodes to replay: a node set such as nid[0001-0100], or positions in the log such as 0:1024")
]
StartCost: TypeAlias = Annotated[
    float | None, Option("Seconds per start from zero nodes", default=_COST, at_least=0.0, at_most=LONGEST_S, rare=True)
]
CostFactor: TypeAlias = Annotated[
    float, Option("Multiplies the costs of growing, shrinking and starting", at_least=0.0, at_most=LONGEST_S, rare=True)
]
SpeedError: TypeAlias = Annotated[
    float,
    Option(
        "Decisions misjudge each speed by a lognormal factor; this is the standard deviation of its logarithm",
        at_least=0.0,
        at_most=10.0,  # speeds stay finite
        rare=True,
    ),
]
Profiled: TypeAlias = Annotated[
    float,
    Option("With --speed-error: share of the tasks with exactly known speeds", at_least=0.0, at_most=1.0, rare=True),
]
Seed: TypeAlias = Annotated[int, Option("Seed of all random choices", at_least=0)]
Metrics: TypeAlias = Annotated[str, Option("Additional figures: metrics or FILE.py:NAME, separated by commas")]


class ReplaySettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a replay. The same settings, log and tasks give the same figures (docs/explanation/semantics.md).

    ``decision_latency_s`` is a number of seconds, or ``"measured"``: the solver's run time, which depends on the
    machine. ``grow_cost_s``, ``shrink_cost_s`` and ``start_cost_s`` override the costs of every task, and
    ``cost_factor`` multiplies all three. ``progress`` selects the work that a preemption undoes (see
    :class:`ProgressKept`); it is ``None`` with the published rules, which define this themselves.
    """

    semantics: Annotated[str, Option("Rules by which tasks advance", choices=SEMANTICS)] = REALISTIC
    events: Annotated[
        str, Option("Published rules: events of all nodes, or of the chosen nodes", choices=EVENTS, rare=True)
    ] = ALL
    window: Window = ""
    nodes: Nodes = ""
    skip_events: Annotated[int, Option("Skip this many events at the start", at_least=0, rare=True)] = 0
    decision_latency_s: Annotated[
        float | str,
        Option(
            "Seconds until new sizes take effect; measured: the solver's run time",
            word=MEASURED,
            at_least=0.0,
            rare=True,
        ),
    ] = 0.0
    min_interval_s: Annotated[
        float, Option("Minimum seconds between decisions; nodes are still returned immediately", at_least=0.0)
    ] = 0.0
    grow_cost_s: Annotated[float | None, Option("Seconds per growth", default=_COST, at_least=0.0, rare=True)] = None
    shrink_cost_s: Annotated[float | None, Option("Seconds per shrink", default=_COST, at_least=0.0, rare=True)] = None
    start_cost_s: StartCost = None
    cost_factor: CostFactor = 1.0
    progress: Annotated[str | None, Option(f"Where progress is kept: {FORMS}", default=MEMORY, free=True)] = None
    speed_error: SpeedError = 0.0
    profiled: Profiled = 0.0
    learning: Annotated[
        str, Option("With --speed-error: whether decisions learn speeds as tasks run", choices=(YES, NO), rare=True)
    ] = NO
    seed: Seed = 0
    metrics: Metrics = ""

    def __post_init__(self) -> None:
        """Validate all fields, and raise for settings that the chosen rules do not know."""
        super().__post_init__()
        if self.semantics == PUBLISHED:
            _as_published(self)
            for name in _ONLY_REALISTIC:
                if getattr(self, name) not in (None, 0.0):
                    checks.reject(self, name, _UNKNOWN_TO_PUBLISHED, _USE_REALISTIC)
        elif self.events != ALL:
            checks.reject(self, "events", "is for the published rules only", "omit it, or use --semantics published")
        _progress(self)

    @classmethod
    def with_options(
        cls, options: Mapping[str, object], caller: str, settings: Settings | None = None
    ) -> ReplaySettings:
        """Return ``settings`` changed by ``options``, keyword arguments of ``caller``; raise for unknown ones."""
        return changed(cls.of(settings or Settings()), options, caller)

    @property
    def progress_kept(self) -> ProgressKept | None:
        """The way in which tasks keep their progress; ``None`` with the published rules."""
        return None if self.progress is None else ProgressKept.parse(self.progress)

    @classmethod
    def progress_in(cls, settings: Settings) -> str | None:
        """Return ``progress`` of ``settings``; ``task`` for settings outside replays."""
        return settings.progress if isinstance(settings, cls) else TASK

    @classmethod
    def of(cls, settings: Settings) -> ReplaySettings:
        """Return ``settings`` as replay settings, with defaults for missing fields and without live settings."""
        if isinstance(settings, cls):
            return settings
        return cls(**{name: getattr(settings, name) for name in Settings.__struct_fields__})


def _as_published(settings: ReplaySettings) -> None:
    """Use the study's horizon and placement instead of the automatic ones, and no turns."""
    if settings.horizon_s == AUTO:
        force_setattr(settings, "horizon_s", HORIZON_S)
    if settings.placement == AUTO:
        force_setattr(settings, "placement", "grouped")
    force_setattr(settings, "turn_s", 0.0)


def _progress(settings: ReplaySettings) -> None:
    """Fill in the default of ``progress``, and bring it into its shortest form; raise for an unknown one."""
    given = settings.progress
    if settings.semantics == PUBLISHED:
        if given not in {None, MEMORY}:
            checks.reject(settings, "progress", _UNKNOWN_TO_PUBLISHED, _USE_REALISTIC)
        force_setattr(settings, "progress", None)
        return
    try:
        force_setattr(settings, "progress", ProgressKept.parse(MEMORY if given is None else given).text)
    except (ValueError, AttributeError):
        fix = f"write {FORMS}, such as disk:300"
        checks.reject(settings, "progress", f"is {given!r}", fix)
