"""Horovod's elastic training, moved from group to group by an agent.

A script keeps Horovod's ``hvd.elastic.run``, ``hvd.elastic.TorchState`` and ``state.commit()``. Their implementation is
replaced: Horovod would ask its own driver for a place, over ports open to everyone. Here the agent assigns the place,
and the group meets on the agent's address.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.errors import ElasticError
from bftrain_elastic.wire.network_interfaces import interface_of
from bftrain_elastic.wire.worker_messages import FormGroup, GroupConfirmed, GroupJoined, TrainingDone
from bftrain_elastic.worker import checkpoint_file
from bftrain_elastic.worker.agent_channel import AgentChannel
from bftrain_elastic.worker.horovod_group import HorovodGroup, end_without_horovod, environment
from bftrain_elastic.worker.lazy_torch import hvd
from bftrain_elastic.worker.process_groups import FORMING, GroupRank
from bftrain_elastic.worker.progress_report import GroupReport, Report
from bftrain_elastic.worker.regrouped_training import ADDRESS, RegroupedTraining, is_caused_by_notice, reason_left
from bftrain_elastic.worker.replica_check import compare_replicas
from bftrain_elastic.worker.run_loop import FOLDER, once
from bftrain_elastic.worker.state import State, agree, mark_large_values, report_in_memory
from bftrain_elastic.worker.state_saving import load, save, save_if_due, save_if_only_here, tidy
from bftrain_elastic.worker.state_tree import StateTree, fold

_REASON_LETTERS: Final = 300

Train = Callable[..., Any]


class NoHorovod(ElasticError):
    """Horovod is missing, or its version cannot be moved between groups."""


def install() -> None:
    """Replace the implementation of ``hvd.elastic.run``; a script's first ``hvd.init()`` makes a one-worker group."""
    try:
        import horovod.torch
        from horovod.torch import elastic
    except ImportError as error:
        raise NoHorovod(f"cannot be imported: {error}", where="horovod.torch", fix="make horovod") from error
    if not hasattr(elastic, "run_fn"):
        raise NoHorovod(
            f"version {horovod.__version__} has no run_fn, which bftrain requires", where="horovod", fix="make horovod"
        )
    channel = AgentChannel.from_environment()
    if channel is None:
        return
    address = os.environ.get(ADDRESS, "127.0.0.1")
    os.environ.update(environment(GroupRank(), "", 0))
    for name, value in {
        "HOROVOD_ELASTIC": "1",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_IFACE": interface_of(address),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(int(FORMING.total_seconds())),
    }.items():
        os.environ.setdefault(name, value)

    def run_fn(train: Train, _reset: Callable[[], None]) -> Train:
        @functools.wraps(train)
        def run(state: Any, *words: Any, **named: Any) -> Any:  # noqa: ANN401 - Horovod's state, the script's own words
            if os.environ.get(FOLDER):
                once(os.environ[FOLDER])
            return _HorovodTraining(state, functools.partial(train, state, *words, **named), channel, address).run()

        return run

    elastic.run_fn = run_fn


class _HorovodTraining(RegroupedTraining):
    """One script's training under the horovod launcher, in groups that form and dissolve."""

    def __init__(self, state: Any, train: Callable[[], Any], channel: AgentChannel, address: str) -> None:  # noqa: ANN401 - Horovod's state
        super().__init__(State(), train, channel)  # our state counts the steps, and writes the commits
        self._horovod_state = state
        self._commit_samples = 0
        self._group = HorovodGroup(address)

    def run(self) -> Any:  # noqa: ANN401 - the result of the script's function
        folder, state = os.environ.get(FOLDER), self._horovod_state
        self._own.saver.folder = Path(folder) if folder else None
        self._keep, state.save = state.save, self._save
        state.check_host_updates = self._check
        if type(state).commit.__module__.startswith("horovod."):  # a script may define its own commit
            state.commit = self._commit
        try:
            return self._serve(self._group.abort)
        finally:
            self._own.group.activity = "after train"
            self._group.close()

    def _reporter(self, place: GroupRank) -> Report:
        return GroupReport(self._channel, self._state, place, averages=False)  # a script may commit in its own way

    def _meeting_point(self) -> tuple[str, int]:
        return self._group.meeting.host, self._group.meeting.port

    def _restore_after_error(self, error: BaseException, _place: GroupRank) -> str | None:
        from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

        if isinstance(error, HostsUpdatedInterrupt):
            if (
                self._own.progress.commit_step != self._own.progress.step
            ):  # Horovod would forget the steps since the previous commit
                self._keep_step()
            return ""
        if isinstance(error, HorovodInternalError):
            reason = (str(error).partition(". ")[0] or type(error).__name__)[:_REASON_LETTERS]
        elif isinstance(error, Exception) and self._holds_state and is_caused_by_notice(error):
            reason = reason_left(error, lost_others=False)
        else:
            end_without_horovod()
            return None
        self._group.cut()  # the other members would wait for us
        if self._holds_state:
            self._horovod_state.restore()
            self._copy_values()
            self._own.progress.step, self._own.progress.samples = self._own.progress.commit_step, self._commit_samples
        return reason

    def _leave_group(self, *, broken: bool) -> None:  # noqa: ARG002 - abort() has cut the connections of a broken one
        self._group.leave()

    def _join(self, place: GroupRank, order: FormGroup) -> None:
        self._own.group.place = place
        self._group.form(place, order.store, self._rescue)
        if place.rank == 0:
            self._channel.send(GroupJoined(place.generation))
        self._horovod_state.on_reset()
        tidy(self._state)
        if not self._holds_state and place.rank == 0:
            self._read()
        if place.workers > 1:
            step = self._group.largest(self._own.progress.step)  # rank 0 has the furthest step
            if order.sync:
                self._horovod_state.sync()
                self._own.progress.step, self._own.saver.lineage = step, self._group.largest(self._own.saver.lineage)
                self._own.progress.samples = self._group.largest(self._own.progress.samples)
                self._keep_step()
            self._holds_state = True
        self._put_parts()
        mark_large_values(self._state)
        if place.rank == 0:
            self._channel.send(GroupConfirmed(place.generation, self._own.progress.step))
            save_if_only_here(self._state)

    def _finish(self, place: GroupRank) -> None:
        """Handle that the script is done and its last state on disk; no member leaves earlier."""
        from horovod.common.exceptions import HorovodInternalError

        if place.rank == 0:
            self._write()
        # If rank 0 is dead, the other members continue
        with suppress(HorovodInternalError) if place.rank == 0 else nullcontext():
            self._group.largest(0)
        self._channel.send(TrainingDone(self._own.progress.step))
        with suppress(HorovodInternalError):
            self._group.largest(0)

    def _commit(self) -> None:
        """Implement ``state.commit()``: all receive the values of rank 0 before they keep a copy."""
        own = self._own
        own.group.activity = "commit"
        own.group.commits += 1
        self._count_step()
        largest, reports = self._channel.gather, False
        if own.group.place.workers > 1:
            self._put_parts()
            found = agree(self._state, largest, self._group.largest_each)
            if found.large_due or found.differ:
                self._take_values_of_first(
                    {*found.compared.names, *(own.copies.large.names if found.large_due else ())}
                )
            largest, reports = found.asked, found.reports
        self._keep_step()
        if reports:
            self._group.largest(0)  # all members have their copy
            if own.group.place.rank == 0:
                report_in_memory(own)
        handlers = self._horovod_state._handlers.values()  # noqa: SLF001 - there is no public way
        compare_replicas(own, [one.value for one in handlers], self._group.gathered)
        self._write_if_due()
        self._leave_if_asked(largest)
        own.group.activity = "script"

    def _save(self) -> None:
        self._count_step()
        self._keep_step()
        self._write_if_due()

    def _check(self) -> None:
        """Implement ``state.check_host_updates()``: all leave, or none."""
        self._leave_if_asked(self._group.largest(self._channel.gather))

    def _count_step(self) -> None:
        if self._own.progress.step == self._own.progress.commit_step:  # scripts without reports still make progress
            self._own.progress.step += 1

    def _keep_step(self) -> None:
        self._keep()
        self._copy_values()
        self._own.progress.commit_step, self._commit_samples = self._own.progress.step, self._own.progress.samples

    def _copy_values(self) -> None:
        """Copy the values that Horovod saves by reference; otherwise the writes of a broken step would remain."""
        tree, state = fold(self._horovod_state._saved_state), self._horovod_state  # noqa: SLF001 - as in _put_parts
        state._saved_state = StateTree(tree.plain, [one.clone() for one in tree.tensors]).unfolded()  # noqa: SLF001 - as above

    def _leave_if_asked(self, generation: int) -> None:
        from horovod.common.exceptions import HostsUpdatedInterrupt

        if generation > self._own.group.place.generation:
            raise HostsUpdatedInterrupt(skip_sync=False)

    def _take_values_of_first(self, names: set[str]) -> None:
        own, state = self._own, self._horovod_state
        values = {name: getattr(state, name) for name in state._saved_state if _paper(name) in names}  # noqa: SLF001 - Horovod's names of what is kept as it is
        found = hvd.broadcast_object(
            (own.progress.step, own.progress.samples, values), root_rank=0, name="bftrain.values"
        )
        if own.group.place.rank:
            own.progress.step, own.progress.samples, values = found
            for name, value in values.items():
                setattr(state, name, value)
            self._put_parts()
            mark_large_values(self._state)

    def _write(self) -> None:
        self._put_parts()
        save(self._state)

    def _write_if_due(self) -> None:
        if self._own.group.place.rank == 0:
            self._put_parts()
            save_if_due(self._state)

    def _rescue(self) -> None:
        """Write the state of the last commit to the folder, unless the folder has a newer one."""
        folder = self._own.saver.folder
        if (
            folder is not None
            and self._holds_state
            and (checkpoint_file.step_of(folder) or 0) < self._own.progress.step
        ):
            self._write()

    def _read(self) -> None:
        """Resume from the last commit in the folder, if there is one."""
        self._put_parts()
        if load(self._state):
            for name in self._horovod_state._saved_state:  # noqa: SLF001 - Horovod's names of what is kept as it is
                setattr(self._horovod_state, name, vars(self._state)[_paper(name)])
        self._keep_step()
        self._holds_state = True

    def _put_parts(self) -> None:
        """Copy all parts of Horovod's state into ours, under names that cannot be its attributes."""
        state = self._horovod_state
        for name in [*state._handlers, *state._saved_state]:  # noqa: SLF001 - there is no public way
            vars(self._state)[_paper(name)] = getattr(state, name)


def _paper(name: str) -> str:
    return f"horovod.{name}"
