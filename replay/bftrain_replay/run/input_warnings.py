"""Warnings about a log, its tasks, settings or decisions: allowed, but rarely intended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bftrain import text_formats
from bftrain.config import Settings
from bftrain.registry import note_on_name
from bftrain.topology import place_of
from bftrain.values.curve import ANY_KIND
from bftrain.values.task import TaskSpec
from bftrain.values.wire import NOTHING
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.measures import largest_by_kind
from bftrain_replay.run import decider_counts
from bftrain_replay.run.result import ReplayResult
from bftrain_replay.simulation.fixed_cluster import fits
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.simulation.rules import as_replayed

_MOST_NAMED = 5


def odd_inputs(log: EventLog, tasks: Sequence[TaskSpec], racks: Mapping[str, str] = NOTHING) -> Iterator[str]:
    """Yield warnings on a log and its tasks; ``racks`` are the places of nodes by name."""
    if log.span_s <= 0.0:
        yield "the log has no duration, so its harvest is zero"
    elif log.idle_node_s <= 0.0:
        yield "no node is ever idle in the log"
    repeated = log.provenance.counts.get("repeated", 0)
    if repeated:
        yield f"log entries that repeat the current state of a node: {repeated:,}"
    if not tasks:
        yield "there are no tasks"
    yield from _misfits(log, tasks)
    spread = [spec.name for spec in tasks if spec.spread is not None]
    places = list(map(place_of(racks), log.node_names))
    if racks and not all(places):
        lost = [name for name, place in zip(log.node_names, places, strict=True) if not place]
        yield f"nodes without a rack, which count as one rack: {len(lost):,}, such as '{lost[0]}'"
    if spread and not any(places):
        yield f"{_some(spread, 'has', 'have')} speeds by places, but the log names none: they have no effect"
    late = [spec.name for spec in tasks if spec.submit_s >= log.span_s]
    if late:
        yield f"{_some(late, 'arrives', 'arrive')} after the end of the log"


def odd_settings(settings: Settings, tasks: Iterable[TaskSpec], kinds: Iterable[str]) -> Iterator[str]:
    """Yield warnings on deprecated names, tasks that never start, and users or node kinds that do not occur."""
    if renamed := note_on_name("objective", settings.objective):
        yield renamed
    if isinstance(settings, ReplaySettings):
        yield from _never_started(settings, tasks)
    yield from odd_shares(settings.entities, settings.prices, tasks, kinds)


def odd_shares(
    entities: Iterable[str], prices: Iterable[str], tasks: Iterable[TaskSpec], kinds: Iterable[str]
) -> Iterator[str]:
    """Yield warnings on users with shares but without tasks, and on priced kinds without nodes."""
    users = sorted({*entities}.difference(spec.user for spec in tasks))
    if users:
        yield f"these have shares but no tasks: {', '.join(users[:_MOST_NAMED])}"
    priced = sorted({*prices}.difference(kinds))
    if priced:
        yield f"these kinds have prices but no nodes: {', '.join(priced[:_MOST_NAMED])}"


def _never_started(settings: ReplaySettings, tasks: Iterable[TaskSpec]) -> Iterator[str]:
    """Yield a warning on tasks that never pay off, because a start takes at least the whole fixed horizon."""
    horizon_s = settings.horizon_s
    if isinstance(horizon_s, str):
        return
    never = [spec.name for spec in as_replayed(tasks, settings) if spec.start_cost_s >= horizon_s]
    if never:
        start = (
            f"{_some(never, 'takes', 'take')} as long to start as the horizon of "
            f"{text_formats.duration(horizon_s)}, or longer"
        )
        yield f"{start}, so no start is worth it: replay with --horizon auto, or a longer one"


def _misfits(log: EventLog, tasks: Sequence[TaskSpec]) -> Iterator[str]:
    """Yield a warning on tasks that can never run: they need more nodes of a kind than the log's peak."""
    largest = largest_by_kind(log)
    if not log.kind_names:
        most = largest[ANY_KIND]
        misfits = [spec.name for spec in tasks if spec.min_nodes > most]
        more = f"more nodes than the {most} idle at the peak"
    else:
        misfits = [spec.name for spec in tasks if not fits(spec, largest)]
        counts = ", ".join(f"{count} {kind}" for kind, count in largest.items())
        more = f"more nodes of a suitable kind than are idle at the peak ({counts})"
    if misfits:
        yield (
            f"{_some(misfits)} {more}, so {'it' if len(misfits) == 1 else 'they'} can never run, "
            f"but still {'competes' if len(misfits) == 1 else 'compete'}"
        )


def odd_decisions(results: Mapping[str, ReplayResult | None]) -> Iterator[str]:
    """Yield a warning on each solver with fallback decisions."""
    for solver, result in results.items():
        if result is not None and result.decisions.fallbacks:
            reason = next(iter(result.decisions.fallbacks.values()))
            decided = result.decisions
            text = decider_counts.sentence(
                result.settings.solver, len(decided), decided.fallback_causes, decided.decided_by, called=solver
            )
            yield f"{text}. The first: {reason}"


def _some(names: Sequence[str], one: str = "needs", many: str = "need") -> str:
    if len(names) == 1:
        return f"task '{names[0]}' {one}"
    named = ", ".join(f"'{name}'" for name in names[:_MOST_NAMED])
    return f"{len(names):,} tasks ({named}{', ...' if len(names) > _MOST_NAMED else ''}) {many}"
