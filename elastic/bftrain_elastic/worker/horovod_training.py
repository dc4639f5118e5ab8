"""Horovod's elastic training, moved from group to group by an agent.

A script keeps Horovod's ``hvd.elastic.run``, ``hvd.elastic.TorchState`` and ``state.commit()``. Their implementation is
replaced: Horovod would ask its own driver for a place, over ports open to everyone. Here the agent assigns the place,
and the members meet at a store of rank 0 on the agent's address.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

from bftrain_elastic.wire.network_interfaces import interface_of
from bftrain_elastic.wire.worker_messages import FormGroup, GroupConfirmed, GroupJoined, TrainingDone
from bftrain_elastic.worker import checkpoint_file
from bftrain_elastic.worker.agent_channel import AgentChannel
from bftrain_elastic.worker.lazy_torch import dist, hvd, torch
from bftrain_elastic.worker.process_groups import FORMING, GroupRank, GroupStore, cut, sockets
from bftrain_elastic.worker.progress_report import GroupReport, Report
from bftrain_elastic.worker.state import State, agree, compare_replicas, mark_large_values, report_in_memory
from bftrain_elastic.worker.state_tree import StateTree, fold
from bftrain_elastic.worker.state_values import REASON_LETTERS, StateGroup
from bftrain_elastic.worker.training import (
    ADDRESS,
    FOLDER,
    RegroupedTraining,
    is_caused_by_notice,
    reason_left,
    refuse_second_training,
)

_CONNECTING: Final = timedelta(seconds=3)  # timeout for one attempt to connect to rank 0
_STUCK_S: Final = 3.0  # time for Horovod to notice cut connections
_PLACES: Final = "rank_and_size"  # scope in which Horovod requests rank and size, from a process's second group on
_POLL_S: Final = 0.0025  # poll interval per member: the load of rank 0 is independent of their number
_LONGEST_POLL_S: Final = 0.25


class HorovodGroup(StateGroup):
    """The group of this process, and its store for the next group, which it may lead as rank 0."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self.meeting = GroupStore(address)
        self._rendezvous: HorovodRendezvous | None = None  # set while this worker leads a group
        self._aborted = False  # a member of the forming group is dead
        self._rescue: Callable[[], object] | None = None  # set while Horovod connects the members

    def form(self, place: GroupRank, store: Sequence[Any], rescue: Callable[[], object]) -> None:
        """Join a new group; ``rescue`` is called before the process ends because Horovod aborts or hangs."""
        hvd.shutdown()
        self.place, self._before, self._aborted, self._joined = place, sockets(), False, True
        try:
            os.environ.update(environment(place, *self._meet(store)))
            self._rescue = rescue
            with instead_of_abort(rescue):
                hvd.init()
        except (ValueError, dist.DistError) as error:  # Horovod raises ValueError when members are missing
            raise HorovodInternalError(str(error)) from error
        finally:
            self._rescue = None

    def _meet(self, store: Sequence[Any]) -> tuple[str, int]:
        """Wait until all members have arrived at rank 0's ``store``; return the address of its rendezvous server.

        Horovod aborts the process if a member does not arrive in time, so call this before ``hvd.init()``.
        """
        place, host, meeting = self.place, self._address, self.meeting.store
        deadline = time.monotonic() + FORMING.total_seconds()
        if place.rank:
            host, port = store
            meeting = self._connect(host, port, deadline)
        meeting = dist.PrefixStore(f"horovod/{place.generation}", meeting)
        if not place.rank:
            self._rendezvous = HorovodRendezvous(host)
            meeting.set("port", str(self._rendezvous.port))
        meeting.add("arrived", 1)
        while meeting.add("arrived", 0) < place.workers:
            self._pause(deadline)
        return host, int(meeting.get("port"))

    def _connect(self, host: str, port: int, deadline: float) -> Any:  # noqa: ANN401 - torch.distributed.Store
        """Return a connection to rank 0's store."""
        while True:
            with suppress(OSError, dist.DistError):
                # torch would retry until its timeout, and log each attempt, if rank 0 is dead
                socket.create_connection((host, port), _CONNECTING.total_seconds()).close()
                store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_CONNECTING)
                store.set_timeout(FORMING)
                return store
            self._pause(deadline)

    def _pause(self, deadline: float) -> None:
        """Wait for other members for a moment; raise an error if one is dead, or after the deadline."""
        if self._aborted or time.monotonic() > deadline:
            raise HorovodInternalError("no connection to the other members: not all of them arrived")
        time.sleep(min(_LONGEST_POLL_S, _POLL_S * self.place.workers))

    def close_rendezvous(self) -> None:
        """Stop listening for members of the group that this worker leads."""
        if self._rendezvous is not None:
            self._rendezvous.close()
            self._rendezvous = None

    def leave(self, *, broken: bool = False) -> None:  # noqa: ARG002 - abort() has cut the connections of a broken one
        """Leave the group, and remove all its state."""
        hvd.shutdown()
        self._joined = False
        self.close_rendezvous()

    def _reduced(self, numbers: Sequence[float], dtype: str, operation: str) -> list[Any]:
        box = torch.tensor(numbers, dtype=getattr(torch, dtype))
        reduce = hvd.Max if operation == "MAX" else hvd.Sum
        results: list[Any] = hvd.allreduce(box, op=reduce, name=f"bftrain.{dtype}.{len(numbers)}").tolist()
        return results

    def abort(self) -> None:
        """Cut the connections to all members, because one is dead. Callable from any thread."""
        if self._joined:  # a late call would break the next group before it forms
            self._aborted = True
            rendezvous = self._rendezvous  # another thread may close it
            if rendezvous is not None:
                rendezvous.refusing = True
            self.cut()
            self._end_if_stuck()

    def _end_if_stuck(self) -> None:
        """End the process if Horovod still waits, as it does for missing connections until its timeout."""
        rescue, deadline = self._rescue, time.monotonic() + _STUCK_S
        while rescue is not None and self._rescue is rescue:
            if time.monotonic() > deadline:
                end_process(rescue)
                return
            time.sleep(0.02)

    def cut(self) -> None:
        """Cut the connections to all members, which may wait for this one."""
        if self._joined:
            cut(sockets() - self._before)


def end_without_horovod() -> None:
    """Let the process exit without Horovod's shutdown, which would wait for members that may not answer."""
    with suppress(ImportError, AttributeError):
        from horovod.torch import mpi_ops

        atexit.unregister(mpi_ops._basics.shutdown)  # noqa: SLF001 - there is no public way


def environment(place: GroupRank, host: str, port: int) -> dict[str, str]:
    """Return the variables that Horovod reads when it forms a group; every worker counts as a host."""
    meeting = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": host, "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)} if port else {}
    return {
        "HOROVOD_HOSTNAME": host_name(place.rank, place.workers),
        "HOROVOD_RANK": str(place.rank),
        "HOROVOD_SIZE": str(place.workers),
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": str(place.rank),
        "HOROVOD_CROSS_SIZE": str(place.workers),
        **meeting,
    }


def host_name(rank: int, workers: int) -> str:
    """Return a member's host name, which encodes its rank and the world size for the rendezvous."""
    return f"rank{rank}of{workers}"


class HorovodRendezvous(RendezvousHTTPServer):  # type: ignore[misc]  # Horovod has no types
    """Horovod's rendezvous for one group, until it is closed; it listens at ``host`` only."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024
    server_address: Any

    def __init__(self, host: str) -> None:
        super().__init__((host, 0), _Handler, 0)
        self.port = int(self.server_address[1])
        self.open = True
        self.refusing = False  # requests are rejected, so that no member waits here for a dead one
        self._thread = threading.Thread(target=self._serve, name="bftrain-meeting", daemon=True)
        self._thread.start()

    def server_bind(self) -> None:
        """Bind and skip the reverse lookup of the host name."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def close(self) -> None:
        """Stop listening."""
        self.open = False
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()
        self.server_close()

    def _serve(self) -> None:
        while self.open:
            self.handle_request()


class _Handler(RendezvousHandler):  # type: ignore[misc]  # as above
    server: HorovodRendezvous

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.server.refusing:
            self.send_error(HTTPStatus.GONE)
        return not self.server.refusing

    def _get_value(self, scope: str, key: str) -> bytes | None:
        """Return a value; for places, global, local and cross-host rank and size, with one member per host."""
        if scope == _PLACES:
            rank, workers = key.partition(":")[0].removeprefix("rank").split("of")
            return f"{rank},{workers},0,1,{rank},{workers}".encode()
        value: bytes | None = super()._get_value(scope, key)
        return value


def end_process(last: Callable[[], object]) -> None:
    """Call ``last``, and exit with ``EX_TEMPFAIL``: another worker replaces this one."""
    try:
        with suppress(Exception):
            last()
        sys.stderr.write("bftrain: the group did not form: the connection to another worker was lost\n")
        sys.stderr.flush()
    finally:
        os._exit(os.EX_TEMPFAIL)


@contextmanager
def instead_of_abort(last: Callable[[], object]) -> Iterator[None]:
    """Call ``last`` and exit with ``EX_TEMPFAIL`` instead of aborting on a C++ error; no-op without libstdc++.

    Horovod's thread does not catch an error of Gloo when a member dies while a group forms. An abort would look like a
    failure of the script, and the state in memory would be lost.
    """
    handler = ctypes.CFUNCTYPE(None)(lambda: end_process(last))
    try:
        set_terminate = ctypes.CDLL("libstdc++.so.6")["_ZSt13set_terminatePFvvE"]  # std::set_terminate
    except (OSError, AttributeError):
        yield
        return
    set_terminate.argtypes, set_terminate.restype = [ctypes.c_void_p], ctypes.c_void_p
    before = set_terminate(ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        set_terminate(before)


Train = Callable[..., Any]


def install() -> None:
    """Replace the implementation of ``hvd.elastic.run``; a script's first ``hvd.init()`` makes a one-worker group."""
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
        def run(state: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Horovod's state, the script's own arguments
            if os.environ.get(FOLDER):
                refuse_second_training(os.environ[FOLDER])
            return _HorovodTraining(state, functools.partial(train, state, *args, **kwargs), channel, address).run()

        return run

    hvd.elastic.run_fn = run_fn


class _HorovodTraining(RegroupedTraining):
    """One script's training under the horovod launcher, in groups that form and dissolve."""

    def __init__(self, state: Any, train: Callable[[], Any], channel: AgentChannel, address: str) -> None:  # noqa: ANN401 - Horovod's state
        super().__init__(State(), train, channel)  # our state counts the steps, and writes the commits
        self._horovod_state = state
        self._commit_samples = 0
        self._own.group = self._group = HorovodGroup(address)

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
            self._group.close_rendezvous()

    def _reporter(self, place: GroupRank) -> Report:
        return GroupReport(self._channel, self._state, place, averages=False)  # a script may commit in its own way

    def _restore_after_error(self, error: BaseException, _place: GroupRank) -> str | None:
        if isinstance(error, HostsUpdatedInterrupt):
            if self._own.progress.commit_step != self._own.progress.step:
                self._keep_step()  # Horovod would forget the steps since the previous commit
            return ""
        if isinstance(error, HorovodInternalError):
            reason = (str(error).partition(". ")[0] or type(error).__name__)[:REASON_LETTERS]
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

    def _join(self, place: GroupRank, order: FormGroup) -> None:
        self._group.form(place, order.store, self._rescue)
        if place.rank == 0:
            self._channel.send(GroupJoined(place.generation))
        self._horovod_state.on_reset()
        self._own.saver.tidy()
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
        self._copy_values_in()
        mark_large_values(self._state)
        if place.rank == 0:
            self._channel.send(GroupConfirmed(place.generation, self._own.progress.step))
            self._own.saver.save_if_only_here()

    def _finish(self, place: GroupRank) -> None:
        """Save the last state, and leave together with all other members."""
        if place.rank == 0:
            self._write()
        # If rank 0 is dead, the others must raise, and train on in a new group
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
            self._copy_values_in()
            agreed = agree(self._state, largest)
            if agreed.large_due or agreed.differ:
                self._take_values_of_first(
                    {*agreed.compared.names, *(own.copies.large.names if agreed.large_due else ())}
                )
            largest, reports = agreed.asked, agreed.reports
        self._keep_step()
        if reports:
            self._group.largest(0)  # all members have their copy
            if own.group.place.rank == 0:
                report_in_memory(own)
        handlers = self._horovod_state._handlers.values()  # noqa: SLF001 - there is no public way
        compare_replicas(own, [one.value for one in handlers])
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
        tree, state = fold(self._horovod_state._saved_state), self._horovod_state  # noqa: SLF001 - as in _copy_values_in
        state._saved_state = StateTree(tree.plain, {name: one.clone() for name, one in tree.tensors.items()}).unfolded()  # noqa: SLF001 - as above

    def _leave_if_asked(self, generation: int) -> None:
        if generation > self._own.group.place.generation:
            raise HostsUpdatedInterrupt(skip_sync=False)

    def _take_values_of_first(self, names: set[str]) -> None:
        own, state = self._own, self._horovod_state
        values = {name: getattr(state, name) for name in state._saved_state if _own_name(name) in names}  # noqa: SLF001 - Horovod's names of plain values
        received = hvd.broadcast_object(
            (own.progress.step, own.progress.samples, values), root_rank=0, name="bftrain.values"
        )
        if own.group.place.rank:
            own.progress.step, own.progress.samples, values = received
            for name, value in values.items():
                setattr(state, name, value)
            self._copy_values_in()
            mark_large_values(self._state)

    def _write(self) -> None:
        self._copy_values_in()
        self._own.saver.save()

    def _write_if_due(self) -> None:
        if self._own.group.place.rank == 0:
            self._copy_values_in()
            self._own.saver.save_if_due()

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
        self._copy_values_in()
        if self._own.saver.load():
            for name in self._horovod_state._saved_state:  # noqa: SLF001 - Horovod's names of plain values
                setattr(self._horovod_state, name, vars(self._state)[_own_name(name)])
        self._keep_step()
        self._holds_state = True

    def _copy_values_in(self) -> None:
        """Copy all parts of Horovod's state into ours, under names that cannot be its attributes."""
        state = self._horovod_state
        for name in [*state._handlers, *state._saved_state]:  # noqa: SLF001 - there is no public way
            vars(self._state)[_own_name(name)] = getattr(state, name)


def _own_name(name: str) -> str:
    return f"horovod.{name}"
