"""Oddities: what is odd about a log, its tasks or its decisions; allowed, but seldom meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bftrain.values.task import TaskSpec
    from bftrain_datasets.eventlog import EventLog
    from bftrain_replay.result import Result


def odd_inputs(log: EventLog, tasks: Sequence[TaskSpec]) -> Iterator[str]:
    """Say what is odd about the inputs: allowed, but seldom meant."""
    if log.span_s <= 0.0:
        yield "the log has no duration, so nothing can be harvested from it"
    elif log.idle_node_s <= 0.0:
        yield "no node is ever idle in the log"
    repeated = log.provenance.counts.get("repeated", 0)
    if repeated:
        yield f"entries of the log that give a node the state it has already and so change nothing: {repeated:,}"
    if not tasks:
        yield "there are no tasks"
    largest = int(log.pool_sizes().max())
    misfits = [spec.name for spec in tasks if spec.min_nodes > largest]
    if misfits:
        yield (
            f"{_some(misfits)} more nodes than the {largest} that are idle at most, so {_it(misfits)} can never run, "
            f"but {'competes' if len(misfits) == 1 else 'compete'} all the same"
        )
    late = [spec.name for spec in tasks if spec.submit_s >= log.span_s]
    if late:
        yield f"{_some(late, 'arrives', 'arrive')} after the log has ended"


def odd_decisions(results: Mapping[str, Result | None]) -> Iterator[str]:
    """Say which solver did not decide everything itself: what its column shows is another one's work too."""
    for solver, result in results.items():
        if result is not None and result.decisions.fallbacks:
            reason = next(iter(result.decisions.fallbacks.values()))
            times = f"{len(result.decisions.fallbacks):,} of {len(result.decisions):,} decisions"
            yield f"{times} of {solver} did not come from the solver itself; the first: {reason}"


def _some(names: Sequence[str], one: str = "needs", many: str = "need") -> str:
    if len(names) == 1:
        return f"task '{names[0]}' {one}"
    return f"{len(names)} tasks ('{names[0]}', ...) {many}"


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "they"
