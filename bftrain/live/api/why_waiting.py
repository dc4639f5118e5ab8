"""Why an unfinished task holds no nodes, in words for its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bftrain.live.model.task_record import LiveTaskRecord, LiveTaskState
from bftrain.node_units import word_of
from bftrain.text_formats import counted

if TYPE_CHECKING:
    from bftrain.live.run.daemon import LiveDaemon


def why_waiting(daemon: LiveDaemon, record: LiveTaskRecord) -> str:
    """Return why a task has no nodes, as text; the reason to be removed first comes first."""
    if record.state is LiveTaskState.PAUSED:
        return f"it is paused: bftrain resume {record.name}"
    if numbers := daemon.task_manager.after.get(record.name):
        return f"it runs after {', '.join(f'#{number}' for number in sorted(numbers))}"
    if held_up := daemon.task_manager.held_up.get(record.name):
        return f"it cannot be run now, and is tried again: {held_up}"
    if record.name not in daemon.harvester.unfinished:
        return "it was just handed in"
    return _of_all_tasks(daemon) or _too_few_nodes(daemon, record.name) or _decided(daemon, record.name)


def _of_all_tasks(daemon: LiveDaemon) -> str:
    """Return the reason that keeps all tasks from nodes; "" if there is none."""
    if daemon.harvesting.paused:
        return "harvesting is paused by an operator"
    if daemon.decision_loop.stalled is not None:
        return "the journal cannot be written, so tasks get no more nodes"
    if daemon.state != "running":
        return f"the live run is {daemon.state}"
    unit = word_of(daemon.site.unit)
    return "" if daemon.harvester.pool_size else f"no {unit} is idle now that the live run may use"


def _too_few_nodes(daemon: LiveDaemon, name: str) -> str:
    """Return that it needs more nodes than there are, if it does."""
    harvester, spec = daemon.harvester, daemon.harvester.spec(name)
    fitting = {kind: count for kind, count in harvester.pools.items() if spec.curve_on(kind) is not None}
    most = max(fitting.values(), default=0) if harvester.pools else harvester.pool_size
    if most >= spec.min_nodes:
        return ""
    kinds = f" of kind {' or '.join(spec.curves)}" if spec.curves else ""
    return f"it needs {counted(spec.min_nodes, word_of(daemon.site.unit))}{kinds}, and the live run has {most} now"


def _decided(daemon: LiveDaemon, name: str) -> str:
    """Return what the last decision did instead, as text."""
    harvester, deciding, unit = daemon.harvester, daemon.site.deciding, word_of(daemon.site.unit)
    last = daemon.last_decision
    if last is None or last.time_s < harvester.spec(name).submit_s:
        return "nothing was decided since it was handed in"
    if name not in harvester.competed:
        before = f"{counted(len(harvester.competed), 'other task')} compete before it"
        return f"{before}, by admission {deciding.admission} with max_tasks = {deciding.max_tasks}"
    held = harvester.held
    used = sum(map(len, held.values()))
    others = f"{counted(used, unit)} went to {counted(len(held), 'other task')} by objective {deciding.objective}"
    free = harvester.pool_size - used
    return f"{others}, and starting it on the {counted(free, unit)} left gains nothing" if free else others
