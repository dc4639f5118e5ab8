"""Changes that owners make to tasks which hold no nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bftrain import speed_estimates
from bftrain.errors import BadInput, BadValue, BftrainError
from bftrain.live import timeouts
from bftrain.live.model.background_thread import within
from bftrain.live.model.callers import Caller, check_weight
from bftrain.live.model.schemas import NotNow
from bftrain.live.model.task_edit import TaskEdit
from bftrain.live.model.task_record import LiveTaskRecord
from bftrain.values.events import TaskEdited

if TYPE_CHECKING:
    from bftrain.live.run.daemon import LiveDaemon


async def edited(
    daemon: LiveDaemon, caller: Caller, find: Callable[[], LiveTaskRecord], given: TaskEdit
) -> tuple[LiveTaskRecord, TaskEdited]:
    """Change the stored task that ``find`` returns; return it with the event for the decisions.

    Raise if the change cannot be. A launcher that knows the task by an earlier name is to drop that one.
    """
    record, event = _changed(daemon, caller, find(), given)
    if event.renamed:
        pool, name = daemon.launcher_pool, event.renamed
        folder = f"the folder '{record.run.folder}'"
        await within(timeouts.TIMEOUTS.file_system_s, lambda: pool.add(record), folder, undo=lambda: pool.drop(name))
        try:
            record, event = _changed(daemon, caller, find(), given)  # it may have been given nodes meanwhile
        except BftrainError:
            pool.drop(name)
            raise
        daemon.task_store.rename(event.task, record)
        daemon.task_manager.rename(event.task, record)
    else:
        daemon.task_store.change(record)
    daemon.task_manager.tracks[record.name].edit(record)
    return record, event


def _changed(
    daemon: LiveDaemon, caller: Caller, record: LiveTaskRecord, given: TaskEdit
) -> tuple[LiveTaskRecord, TaskEdited]:
    track, harvester, name = daemon.task_manager.tracks[record.name], daemon.harvester, _name(daemon, record, given)
    vacates = name != record.name and daemon.launcher_pool.lingers(record.name)
    if track.held or vacates or record.name not in harvester.unfinished:
        fix = f"bftrain pause {record.name}, then change it, and resume it"
        raise NotNow(f"task '{record.name}' holds nodes, and only waiting tasks can be changed", fix=fix)
    if given.weight is not None and given.weight != record.spec.weight:
        check_weight(caller, given.weight, daemon.site.api.max_weight)
    known = harvester.spec(record.name)  # with what was measured
    changes = given.changes
    try:
        if record.guessed and not track.speeds and given.max_nodes is not None:
            others = [harvester.spec(task).curve for task in harvester.unfinished if task != record.name]
            changes["curve"] = speed_estimates.first_curve(given.max_nodes, others)
        spec, decided = replace(record.spec, name=name, **changes), replace(known, **changes)
    except BadValue as error:
        raise BadInput(error.what, where=(error.where or "").rpartition(".")[2], fix=error.fix) from error
    if unfit := daemon.node_manager.kinds.unfit(spec.min_nodes, spec.curves):
        raise BadInput(unfit, where="min_nodes", fix="give fewer nodes")
    renamed = name if name != record.name else ""
    event = TaskEdited(time_s=daemon.decision_loop.now, spec=decided, renamed=renamed)
    return replace(record, name=name, spec=spec), event


def _name(daemon: LiveDaemon, record: LiveTaskRecord, given: TaskEdit) -> str:
    """Return the name of a task after a change; an ending with its user stays."""
    stem, at, user = record.name.partition("@")
    name = f"{stem if given.name is None else given.name}{at}{user}"
    if name == record.name:
        return name
    if daemon.task_store.get(name) is not None:
        raise NotNow(f"an unfinished task is called '{name}' already", where="name", fix="choose another name")
    if why := daemon.task_manager.held_up.get(record.name):
        raise NotNow(f"task '{record.name}' cannot go on for now: {why}", where="name", fix="name it later")
    return name
