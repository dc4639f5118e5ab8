"""Changes that owners make to tasks which hold no nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from bftrain import speed_estimates
from bftrain.errors import BadInput, BadValue
from bftrain.live.model.callers import Caller, check_weight
from bftrain.live.model.schemas import NotNow
from bftrain.live.model.task_edit import TaskEdit
from bftrain.live.model.task_record import LiveTaskRecord
from bftrain.values.events import TaskEdited

if TYPE_CHECKING:
    from bftrain.live.run.daemon import LiveDaemon


def edited(
    daemon: LiveDaemon, caller: Caller, record: LiveTaskRecord, given: TaskEdit
) -> tuple[LiveTaskRecord, TaskEdited]:
    """Return the changed record of a task, and the event for the decisions; raise if the change cannot be."""
    track, harvester = daemon.task_manager.tracks[record.name], daemon.harvester
    if track.held or record.name not in harvester.unfinished:
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
        spec, decided = replace(record.spec, **changes), replace(known, **changes)
    except BadValue as error:
        raise BadInput(error.what, where=(error.where or "").rpartition(".")[2], fix=error.fix) from error
    if unfit := daemon.node_manager.kinds.unfit(spec.min_nodes, spec.curves):
        raise BadInput(unfit, where="min_nodes", fix="give fewer nodes")
    return replace(record, spec=spec), TaskEdited(time_s=daemon.decision_loop.now, spec=decided)
