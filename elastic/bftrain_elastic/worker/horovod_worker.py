"""Horovod's elastic training, moved from group to group by an agent.

A script keeps ``hvd.elastic.run``, ``hvd.elastic.TorchState`` and ``state.commit()`` as Horovod has them. What is
exchanged is what stands behind them: Horovod would ask a driver of its own, over ports open to all, where it belongs
now; here the agent says so, and the group meets on the address that the agent was given.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.errors import ElasticError
from bftrain_elastic.wire.messages import Message
from bftrain_elastic.wire.network_interfaces import interface_of
from bftrain_elastic.worker import checkpoint_file, progress_report, replica_drift
from bftrain_elastic.worker.agent_channel import AgentChannel
from bftrain_elastic.worker.horovod_group import HorovodGroup, end_without_horovod, environment
from bftrain_elastic.worker.process_groups import FORMING, GroupRank
from bftrain_elastic.worker.run_loop import ADDRESS, FOLDER, go_on, is_of_notice, once, teller, why_left
from bftrain_elastic.worker.state import State
from bftrain_elastic.worker.state_agreement import large_values_due, look_at_large_values, tell_in_memory, wants_to_tell
from bftrain_elastic.worker.state_saving import (
    load,
    save,
    save_if_due,
    save_if_only_here,
    save_or_end,
    tell_on_disk,
    tidy,
)
from bftrain_elastic.worker.state_values import compared_values, inner
from bftrain_elastic.worker.termination import on_sigterm

_NOTHING: Final = -1  # the step of a worker that has no state yet
_REASON_LETTERS: Final = 300

Train = Callable[..., Any]


class NoHorovod(ElasticError):
    """Horovod is not here, or not one that can be moved."""


def install() -> None:
    """Stand behind ``hvd.elastic.run`` from now on; a script's first ``hvd.init()`` makes a group of one."""
    try:
        import horovod.torch
        from horovod.torch import elastic
    except ImportError as error:
        raise NoHorovod(f"cannot be imported: {error}", where="horovod.torch", fix="make horovod") from error
    if not hasattr(elastic, "run_fn"):
        raise NoHorovod(
            f"version {horovod.__version__} has no run_fn, which this stands on", where="horovod", fix="make horovod"
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
            return _Moved(state, functools.partial(train, state, *words, **named), channel, address).run()

        return run

    elastic.run_fn = run_fn


class _Moved:
    """One script's training under the horovod launcher: groups come and go."""

    def __init__(self, state: Any, train: Callable[[], Any], channel: AgentChannel, address: str) -> None:  # noqa: ANN401 - Horovod's state
        self._state = state
        self._train = train
        self._channel = channel
        self._book = State()  # counts the steps, and writes the commits
        self._own = inner(self._book)
        self._holds_state = False
        self._commit_samples = 0
        self._group = HorovodGroup(address)

    def run(self) -> Any:  # noqa: ANN401 - the result of the script's function
        folder = os.environ.get(FOLDER)
        self._own.folder = Path(folder) if folder else None
        self._own.tell = teller(self._channel)
        self._keep, self._state.save = self._state.save, self._save
        self._state.check_host_updates = self._check
        if type(self._state).commit.__module__.startswith("horovod."):  # a script may have one of its own
            self._state.commit = self._commit
        self._channel.on_abort = self._group.abort
        self._channel.position = lambda: (self._own.place, self._own.commits)
        self._channel.listen()
        try:
            with on_sigterm(go_on):
                return self._follow()
        finally:
            self._own.place = "after train"
            self._group.close()

    def _follow(self) -> Any:  # noqa: ANN401 - the result of the script's function
        """Do what the agent says until the training is over."""
        self._say_ready(0, "")
        while (order := self._channel.next()) is not None:
            if order.get("type") == "leave":
                if order.get("save"):
                    save_or_end(self._own, self._write, float(order.get("grace_s", 0.0)))
                raise SystemExit(0)
            if order.get("type") == "go":
                over, result = self._in_group(order)
                if over:
                    return result
        raise SystemExit("bftrain: the agent is gone")

    # -- in a group

    def _in_group(self, order: Message) -> tuple[bool, Any]:
        """Train in one group; tell whether the training is over, and what it gave."""
        from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

        place = GroupRank(order["generation"], order["rank"], order["workers"], order["size"])
        result, reason = None, ""
        self._own.place, self._own.commits = "forming", 0
        try:
            self._join(place, order)
            progress_report.use(progress_report.through(self._channel, self._book, place))
            self._own.place = "script"
            result = self._train()
            self._own.place = "the end of train"
            self._finish(place)
        except HostsUpdatedInterrupt:
            if self._own.commit_step != self._own.step:  # between commits; Horovod would forget what was done since
                self._keep_step()
        except HorovodInternalError as error:
            reason = (str(error).partition(". ")[0] or type(error).__name__)[:_REASON_LETTERS]
            self._group.cut()  # or the others would wait for us
            if self._holds_state:
                self._return_to_commit()
        except BaseException as error:
            if not (isinstance(error, Exception) and self._holds_state and is_of_notice(error)):
                end_without_horovod()
                raise
            reason = why_left(error, lost_others=False)
            self._group.cut()
            self._return_to_commit()
        else:
            return True, result
        self._own.place = "between two groups"
        self._group.leave()
        self._say_ready(place.generation, reason)
        return False, None

    def _return_to_commit(self) -> None:
        self._state.restore()
        self._own.step, self._own.samples = self._own.commit_step, self._commit_samples

    def _join(self, place: GroupRank, order: Message) -> None:
        """Form the group and make sure that all hold the same state."""
        self._own.group.place = place
        self._group.form(place, order["store"], self._rescue)
        if place.rank == 0:
            self._channel.say({"type": "joined", "generation": place.generation})
        self._state.on_reset()
        if place.rank == 0:
            tidy(self._book)
        if not self._holds_state and place.rank == 0:
            self._read()
        if place.workers > 1:
            step = self._group.largest(self._own.step)  # rank 0 has got furthest
            if order["sync"]:
                self._state.sync()
                self._own.step, self._own.lineage = step, self._group.largest(self._own.lineage)
                self._own.samples = self._group.largest(self._own.samples)
                self._keep_step()
            self._holds_state = True
        if place.rank == 0:
            self._channel.say({"type": "confirmed", "generation": place.generation, "step": self._own.step})
            vars(self._book).update(self._parts())
            save_if_only_here(self._book)

    def _finish(self, place: GroupRank) -> None:
        """Know that the script is done and its last state on disk; no member leaves before that."""
        from horovod.common.exceptions import HorovodInternalError

        if place.rank == 0:
            self._write()
        with suppress(HorovodInternalError) if place.rank == 0 else nullcontext():  # others go on if rank 0 is dead
            self._group.largest(0)
        self._channel.say({"type": "done", "step": self._own.step})
        with suppress(HorovodInternalError):
            self._group.largest(0)

    def _say_ready(self, generation: int, reason: str) -> None:
        tell_on_disk(self._own)
        step = self._own.step if self._holds_state else _NOTHING
        message = {"type": "ready", "step": step, "generation": generation, "reason": reason}
        self._channel.say({**message, "store": self._group.meeting_point})

    # -- what the script's state does

    def _commit(self) -> None:
        """Stand for ``state.commit()``: all get the values of rank 0 before they keep a copy."""
        own = self._own
        own.place = "commit"
        own.commits += 1
        self._count_step()
        largest, tells = self._channel.gather, 0
        if own.group.place.workers > 1:
            largest, tells = self._agree(largest)
        self._keep_step()
        if tells:
            self._group.largest(0)  # all have their copy
            if own.group.place.rank == 0:
                tell_in_memory(own)
        if own.group.place.workers > 1 and replica_drift.is_due(own.commits):
            self._tell_drift()
        self._write_if_due()
        self._leave_if_asked(largest)
        own.place = "script"

    def _save(self) -> None:
        """Stand for ``state.save()``."""
        self._count_step()
        self._keep_step()
        self._write_if_due()

    def _check(self) -> None:
        """Stand for ``state.check_host_updates()``: all leave, or none."""
        self._leave_if_asked(self._group.largest(self._channel.gather))

    def _count_step(self) -> None:
        if self._own.step == self._own.commit_step:  # a script that does not report still gets further
            self._own.step += 1

    def _keep_step(self) -> None:
        self._keep()
        self._own.commit_step, self._commit_samples = self._own.step, self._own.samples

    def _leave_if_asked(self, generation: int) -> None:
        from horovod.common.exceptions import HostsUpdatedInterrupt

        if generation > self._own.group.place.generation:
            raise HostsUpdatedInterrupt(skip_sync=False)

    def _agree(self, number: int) -> tuple[int, int]:
        """Return the largest of all members' numbers, and whether rank 0 will tell; all have its values then."""
        vars(self._book).update(self._parts())
        compared = compared_values(self._book)
        digest, tells = compared.digest(), wants_to_tell(self._own)
        numbers = [number, digest, -digest, tells, *look_at_large_values(self._book, compared)]
        largest, highest, lowest, tells, *large = self._group.largest_each(numbers, "int64")
        due = large_values_due(large, leaves=largest > self._own.group.place.generation)
        if due or highest != -lowest:
            self._take_values_of_first({*compared.names, *(self._own.large.names if due else ())})
        return int(largest), int(tells)

    def _take_values_of_first(self, names: set[str]) -> None:
        """Give all members the values of rank 0."""
        import horovod.torch as hvd

        own, state = self._own, self._state
        values = {name: getattr(state, name) for name in state._saved_state if _paper(name) in names}  # noqa: SLF001 - Horovod's names of what is kept as it is
        found = hvd.broadcast_object((own.step, own.samples, values), root_rank=0, name="bftrain.values")
        if own.group.place.rank:
            own.step, own.samples, values = found
            for name, value in values.items():
                setattr(state, name, value)
            vars(self._book).update(self._parts())
            look_at_large_values(self._book, compared_values(self._book))

    def _tell_drift(self) -> None:
        """Tell if the replicas of the models are not the same on all members."""
        handlers = self._state._handlers.values()  # noqa: SLF001 - there is no public way
        numbers = replica_drift.summary(one.value for one in handlers if hasattr(one.value, "parameters"))
        found = self._group.largest_each([*numbers, *(-number for number in numbers)], "float64")
        pairs = [(-low, high) for high, low in zip(found[: len(numbers)], found[len(numbers) :], strict=True)]
        relative = replica_drift.relative(pairs)
        if relative > replica_drift.TOLERATED and self._own.group.place.rank == 0:
            self._own.tell({"type": "drift", "step": self._own.step, "relative": relative})

    # -- on paper

    def _write(self) -> None:
        vars(self._book).update(self._parts())
        save(self._book)

    def _write_if_due(self) -> None:
        if self._own.group.place.rank == 0:
            vars(self._book).update(self._parts())
            save_if_due(self._book)

    def _rescue(self) -> None:
        """Write the state of the last commit to the folder, unless a newer one is there."""
        folder = self._own.folder
        if folder is not None and self._holds_state and (checkpoint_file.step_of(folder) or 0) < self._own.step:
            self._write()

    def _read(self) -> None:
        """Go on from the last commit in the folder, if there is one."""
        vars(self._book).update(self._parts())
        if load(self._book):
            for name in self._state._saved_state:  # noqa: SLF001 - Horovod's names of what is kept as it is
                setattr(self._state, name, vars(self._book)[_paper(name)])
        self._keep_step()
        self._holds_state = True

    def _parts(self) -> dict[str, Any]:
        """Give all that Horovod's state holds, under names that are no attributes of ours."""
        names = [*self._state._handlers, *self._state._saved_state]  # noqa: SLF001 - there is no public way
        return {_paper(name): getattr(self._state, name) for name in names}


def _paper(name: str) -> str:
    return f"horovod.{name}"
