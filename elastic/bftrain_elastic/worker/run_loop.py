"""run: a script's training, in one group after another."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from bftrain_elastic.errors import BadScript, ElasticError
from bftrain_elastic.wire.messages import Message, encode
from bftrain_elastic.worker import progress_report
from bftrain_elastic.worker.agent_channel import AgentChannel
from bftrain_elastic.worker.process_groups import (
    GroupRank,
    GroupStore,
    ProcessGroup,
    listen_on,
    lost,
    outlive_others,
    warm_up,
)
from bftrain_elastic.worker.state import RegroupSignal, State, leave_group
from bftrain_elastic.worker.state_agreement import tell_in_memory
from bftrain_elastic.worker.state_saving import load, rescue, save, save_if_only_here, save_or_end, tell_on_disk, tidy
from bftrain_elastic.worker.state_values import NO_STEP, capture, inner, keep, restore
from bftrain_elastic.worker.termination import follows_sigterm, grace_s, on_sigterm

FOLDER: Final = "BFTRAIN_FOLDER"  # where commits are kept
LAUNCHER: Final = "BFTRAIN_LAUNCHER"  # who started this worker
ADDRESS: Final = "BFTRAIN_ADDRESS"  # where other nodes reach this one
SIZE: Final = "BFTRAIN_SIZE"  # how many nodes the group runs on
LOADING: Final = "loading the state"  # the place of a worker that reads the folder
_NOTHING: Final = -1  # the step of a worker that has no state yet
_REASON_LETTERS: Final = 300
_STUCK_S: Final = 1.0  # how long a worker may take to notice that it was cut off,
_STUCK_STEPS: Final = 3.0  # or so many of its steps, if these are long

Train = Callable[[State], None]
trained: Final[set[str]] = set()  # the folders for which this process was asked to


def run(state: State, train: Train) -> None:
    """Call ``train(state)`` once for every group that this worker is part of, until it returns.

    Without a manager there is one group: of one worker, or the one that torchrun's environment names. SIGTERM does not
    end a worker in here: its agent says what it is to do, or it leaves ``train`` at the next commit and saves.
    """
    folder = os.environ.get(FOLDER)
    inner(state).folder = Path(folder) if folder else None
    if folder:
        once(folder)
    channel = AgentChannel.from_environment()
    if channel is not None and os.environ.get(LAUNCHER) == "native":
        _Resized(state, train, channel).run()
    else:
        _once(state, train, channel)


def once(folder: str) -> None:
    """Demand that a script trains once: its folder holds one state, and when that is done so is the task."""
    if folder in trained:
        fix = "train it all in one, and keep in the state how far it is"
        raise BadScript("a script can train only once under a launcher", where="run", fix=fix)
    trained.add(folder)


class _Resized:
    """Training under the native launcher: groups come and go."""

    def __init__(self, state: State, train: Train, channel: AgentChannel) -> None:
        self._state = state
        self._inner = inner(state)
        self._train = train
        self._channel = channel
        self._holds_state = False
        self._training = _NOTHING  # the generation of the group that this worker is in
        self._address = os.environ.get(ADDRESS, "127.0.0.1")

    def run(self) -> None:
        listen_on(self._address)
        outlive_others()
        warm_up()
        self._store = GroupStore(self._address)
        self._inner.asked = lambda: self._channel.gather
        self._inner.tell = teller(self._channel)
        self._inner.keeps_alone = grace_s() > 0
        self._channel.on_abort = self._abort
        self._channel.position = lambda: (self._inner.place, self._inner.commits)
        self._channel.listen()
        with on_sigterm(go_on):
            self._follow()
        self._inner.place = "after train"

    def _follow(self) -> None:
        """Do what the agent says until the training is over."""
        self._say_ready(0, "")
        while (order := self._channel.next()) is not None:
            if order.get("type") == "leave":
                self._leave(order)
            if order.get("type") == "go" and self._in_group(order):
                return
        raise SystemExit("bftrain: the agent is gone")

    def _abort(self) -> None:
        """Cut the connections to the others; called by the channel's thread when one of them is dead.

        Now and then Gloo does not see that and waits on. Then this thread writes the last commit down and ends the
        worker: another one takes its place.
        """
        generation = self._training
        self._inner.group.abort()
        if self._inner.place == LOADING:  # it waits for a file, and will see later that the others are gone
            return
        deadline = time.monotonic() + max(_STUCK_S, _STUCK_STEPS * self._inner.pace_s)
        while self._training == generation != _NOTHING and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._training == generation != _NOTHING:
            with suppress(Exception):  # also what a broken GPU raises: the worker ends either way
                rescue(self._state)
            os._exit(os.EX_TEMPFAIL)

    def _in_group(self, order: Message) -> bool:
        """Train in one group; tell whether the training is over."""
        place = GroupRank(order["generation"], order["rank"], order["workers"], order["size"])
        reason = ""
        try:
            self._train_there(place, order)
        except RegroupSignal:
            pass
        except Exception as error:
            lost_others = place.workers > 1 and isinstance(error, RuntimeError) and lost(error)
            if not (lost_others or (self._has_copy and is_of_notice(error))):
                raise
            reason = why_left(error, lost_others=lost_others)
            # Without a step a copy was being made, and the state is as committed
            if self._holds_state and self._inner.copy is not None and self._inner.copy_step != NO_STEP:
                restore(self._state, self._inner.copy)
        else:
            return True
        self._inner.place = "between two groups"
        leave_group(self._state, broken=bool(reason))
        self._say_ready(place.generation, reason)
        return False

    @property
    def _has_copy(self) -> bool:
        return self._inner.copy is not None and self._holds_state

    def _train_there(self, place: GroupRank, order: Message) -> None:
        self._training = place.generation
        self._inner.place, self._inner.commits = "forming", 0
        try:
            self._join(place, order)
            progress_report.use(progress_report.through(self._channel, self._state, place))
            self._inner.place = "script"
            self._train(self._state)
            self._inner.place = "the end of train"
            self._finish()
        finally:
            self._training = _NOTHING

    def _join(self, place: GroupRank, order: Message) -> None:
        """Form the group and make sure that all hold the same state."""
        group = self._inner.group
        group.join(place, self._meeting_point(place, order))
        group.largest(0)  # all have met; what follows takes as long as the state is large
        group.settle()
        if place.rank == 0:
            self._channel.say({"type": "joined", "generation": place.generation})
            tidy(self._state)
        if not self._holds_state and place.rank == 0:
            self._inner.place = LOADING
            load(self._state)
            self._holds_state = True
        self._inner.place = "forming"
        if place.workers > 1:
            if order["sync"]:
                self._synchronise(group, place)
            elif self._inner.copy_step != self._inner.step:
                keep(self._state)
            group.largest(0)  # all are through
        elif self._inner.keeps_alone:
            keep(self._state)
        if place.rank == 0:
            self._channel.say({"type": "confirmed", "generation": place.generation, "step": self._inner.step})
            if place.size > 1:
                tell_in_memory(self._inner)
            save_if_only_here(self._state)

    def _synchronise(self, group: ProcessGroup, place: GroupRank) -> None:
        tree = group.shared(capture(self._state) if place.rank == 0 else None)
        if place.rank:
            restore(self._state, tree, ours=True)
            self._holds_state = True
        keep(self._state)

    def _meeting_point(self, place: GroupRank, order: Message) -> Any:  # noqa: ANN401 - torch.distributed.Store
        if place.rank == 0 or place.workers == 1:
            return self._store.store
        import torch.distributed as dist

        from bftrain_elastic.worker.process_groups import FORMING

        host, port = order["store"]
        return dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=FORMING)

    def _finish(self) -> None:
        """Know that the script is done; no member leaves before that.

        The others say so only when the last state is on disk: if rank 0 dies while it writes, they go on from theirs.
        """
        end_together(self._state)
        self._channel.say({"type": "done", "step": self._inner.step})
        with suppress(RuntimeError):
            self._inner.group.largest(0)
        leave_group(self._state)

    def _leave(self, order: Message) -> NoReturn:
        """End this worker: what comes after ``run`` in the script is for those who finish."""
        if order.get("save"):
            save_or_end(self._inner, lambda: save(self._state), float(order.get("grace_s", 0.0)))
        raise SystemExit(0)

    def _say_ready(self, generation: int, reason: str) -> None:
        tell_on_disk(self._inner)
        step = self._inner.step if self._holds_state else _NOTHING
        store = [self._store.host, self._store.port]
        self._channel.say({"type": "ready", "step": step, "generation": generation, "store": store, "reason": reason})


def teller(channel: AgentChannel) -> Callable[[Message], None]:
    """Return how a state tells its agent something, which never waits for the agent."""
    return lambda message: channel.mention(str(message["type"]), encode(message))


def is_of_notice(error: Exception) -> bool:
    """Return whether an error of the script is due to a SIGTERM that announces the loss of the node."""
    notice_s = grace_s()
    return notice_s > 0 and not isinstance(error, ElasticError) and follows_sigterm(notice_s)


def why_left(error: Exception, *, lost_others: bool) -> str:
    """Say why a worker left its group."""
    words = str(error) if lost_others else f"after SIGTERM the script raised {type(error).__name__}: {error}"
    return words[:_REASON_LETTERS]


def end_together(state: State) -> None:
    """Write the state at the end of a training; when it returns that is done on all members."""
    group = inner(state).group
    if group.place.rank == 0:
        save(state)
        with suppress(RuntimeError):  # others died, and nothing is lost
            group.largest(0)
    else:
        group.largest(0)


def go_on() -> None:
    """Do nothing when SIGTERM comes: schedulers send it to all processes of a node, and the agent knows what is due."""


def _once(state: State, train: Train, channel: AgentChannel | None) -> None:
    """Train in the one group that the environment names, from the last commit in the folder on."""
    workers, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    place = GroupRank(0, rank, workers, int(os.environ.get(SIZE, str(workers))))
    own = inner(state)
    if channel is not None:
        tell = teller(channel)
        # When a node leaves all are started again, from what is on disk: what is in memory does not count
        own.tell = lambda message: None if message["type"] == "in_memory" else tell(message)
        own.keeps_alone = own.folder is not None
        channel.position = lambda: (own.place, own.commits)
        channel.listen()
        progress_report.use(progress_report.through(channel, state, place))
    with on_sigterm(_leave_on_order(state)) if own.folder is not None else nullcontext():
        try:
            said = _train_once(state, train, place)
        except Exception as error:
            if workers > 1 and channel is not None and isinstance(error, RuntimeError) and lost(error):
                _end_without_others(state, error)
            if channel is not None and not isinstance(error, ElasticError) and follows_sigterm(math.inf):
                _end_on_order(state, channel, error)
            raise
        if channel is not None:
            channel.say({"type": said, "step": own.step})
        own.place = "after train"
        if said == "stopped":
            raise SystemExit(0)


def _train_once(state: State, train: Train, place: GroupRank) -> str:
    """Train in the one group; return ``done``, or ``stopped`` if that was asked for."""
    own = inner(state)
    own.place = "forming"
    _join_once(state, place)
    own.place, said = "script", "done"
    try:
        train(state)
    except RegroupSignal:
        said = "stopped"
    own.place = "the end of train"
    end_together(state)
    leave_group(state)
    return said


def _end_without_others(state: State, error: RuntimeError) -> NoReturn:
    """End because another worker is gone. What all of them committed last is written before, as rank 0 may be dead."""
    sys.stderr.write(f"bftrain: the other workers are lost: {str(error)[:_REASON_LETTERS]}\n")
    with suppress(Exception):  # also what a broken GPU raises: the worker ends either way
        rescue(state)
    sys.stderr.flush()
    os._exit(os.EX_TEMPFAIL)  # what is left of the group could wait for the others


def _end_on_order(state: State, channel: AgentChannel, error: Exception) -> None:
    """End after SIGTERM has ended what the script needs, with the last commit on disk; return if there is none."""
    own = inner(state)
    if own.copy is None:
        return
    if own.copy_step == NO_STEP:  # a copy was being made
        save(state)
    else:
        rescue(state)
    sys.stderr.write(f"bftrain: {why_left(error, lost_others=False)}\n")
    channel.say({"type": "stopped", "step": max(own.copy_step, own.commit_step)})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # what is left of the group could wait for the others


def _join_once(state: State, place: GroupRank) -> None:
    group = inner(state).group
    group.join(place, _named_store(place) if place.workers > 1 else None)
    if place.workers > 1:
        group.largest(0)  # all have met; what follows takes as long as the state is large
        group.settle()
    if place.rank == 0:
        tidy(state)
        load(state)
    if place.workers > 1:
        tree = group.shared(capture(state) if place.rank == 0 else None)
        if place.rank:
            restore(state, tree, ours=True)


def _leave_on_order(state: State) -> Callable[[], None]:
    """Return what SIGTERM does: it ends the training at the next commit, where all workers know of it."""
    asked = 0

    def note() -> None:
        nonlocal asked
        asked = 1

    inner(state).asked = lambda: asked
    return note


def _named_store(place: GroupRank) -> Any:  # noqa: ANN401 - torch.distributed.Store
    """Give the meeting point that torchrun's environment names; rank 0 opens it, on that address alone."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    listen_on(os.environ.get(ADDRESS, address))
    if place.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return GroupStore(address, port).store
    import torch.distributed as dist

    return dist.TCPStore(address, port, is_master=False, wait_for_workers=False)
