"""run: a script's training, in one group after another."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from bftrain_elastic import progress
from bftrain_elastic.channel import Channel
from bftrain_elastic.errors import BadScript, ElasticError
from bftrain_elastic.groups import Group, Place, Store, listen_on, lost, outlive_others, warm_up
from bftrain_elastic.messages import Message
from bftrain_elastic.state import (
    Regroup,
    State,
    capture,
    inner,
    keep,
    leave_group,
    load,
    rescue,
    restore,
    save,
    tidy,
)

FOLDER: Final = "BFTRAIN_FOLDER"  # where commits are kept
LAUNCHER: Final = "BFTRAIN_LAUNCHER"  # who started this worker
ADDRESS: Final = "BFTRAIN_ADDRESS"  # where other nodes reach this one
SIZE: Final = "BFTRAIN_SIZE"  # how many nodes the group runs on
_NOTHING: Final = -1  # the step of a worker that has no state yet
_REASON_LETTERS: Final = 300
_STUCK_S: Final = 1.0  # how long a worker may take to notice that it was cut off,
_STUCK_STEPS: Final = 3.0  # or so many of its steps, if these are long

Train = Callable[[State], None]
trained: Final[set[str]] = set()  # the folders for which this process was asked to


def run(state: State, train: Train) -> None:
    """Call ``train(state)`` once for every group that this worker is part of, until it returns.

    Without a manager there is one group: of one worker, or the one that torchrun's environment names.
    """
    folder = os.environ.get(FOLDER)
    inner(state).folder = Path(folder) if folder else None
    if folder:
        once(folder)
    channel = Channel.from_environment()
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

    def __init__(self, state: State, train: Train, channel: Channel) -> None:
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
        self._store = Store(self._address)
        self._inner.asked = lambda: self._channel.gather
        self._inner.tell = lambda what, step: self._channel.say({"say": what, "step": step})
        self._channel.on_abort = self._abort
        self._channel.listen()
        self._say_ready(0, "")
        while (order := self._channel.next()) is not None:
            if order.get("do") == "leave":
                self._leave(save_first=bool(order.get("save")))
            if order.get("do") == "go" and self._in_group(order):
                return
        raise SystemExit("bftrain: the agent is gone")

    def _abort(self) -> None:
        """Cut the connections to the others; called by the channel's thread when one of them is dead.

        Now and then Gloo does not see that and waits on. Then this thread writes the last commit down and ends the
        worker: another one takes its place.
        """
        generation = self._training
        self._inner.group.abort()
        deadline = time.monotonic() + max(_STUCK_S, _STUCK_STEPS * self._inner.pace_s)
        while self._training == generation != _NOTHING and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._training == generation != _NOTHING:
            with suppress(OSError, ElasticError):
                rescue(self._state)
            os._exit(os.EX_TEMPFAIL)

    def _in_group(self, order: Message) -> bool:
        """Train in one group; tell whether the training is over."""
        place = Place(order["generation"], order["rank"], order["workers"], order["size"])
        reason = ""
        try:
            self._train_there(place, order)
        except Regroup:
            pass
        except RuntimeError as error:
            if place.workers == 1 or not lost(error):
                raise
            reason = str(error)[:_REASON_LETTERS]
            if self._inner.copy is not None and self._holds_state:
                restore(self._state, self._inner.copy)
        else:
            return True
        leave_group(self._state, broken=bool(reason))
        self._say_ready(place.generation, reason)
        return False

    def _train_there(self, place: Place, order: Message) -> None:
        self._training = place.generation
        try:
            self._join(place, order)
            progress.use(progress.through(self._channel, self._state, place))
            self._train(self._state)
            self._finish(place)
        finally:
            self._training = _NOTHING

    def _join(self, place: Place, order: Message) -> None:
        """Form the group and make sure that all hold the same state."""
        group = self._inner.group
        group.join(place, self._meeting_point(place, order))
        if place.rank == 0:
            tidy(self._state)
        if not self._holds_state and place.rank == 0:
            load(self._state)
            self._holds_state = True
        if place.workers > 1:
            if order["sync"]:
                self._synchronise(group, place)
            elif self._inner.copy_step != self._inner.step:
                keep(self._state)
            group.largest(0)  # everybody is through
            group.settle()
        if place.rank == 0:
            self._channel.say({"say": "confirmed", "generation": place.generation, "step": self._inner.step})

    def _synchronise(self, group: Group, place: Place) -> None:
        tree = group.shared(capture(self._state) if place.rank == 0 else None)
        if place.rank:
            restore(self._state, tree, ours=True)
            self._holds_state = True
        keep(self._state)

    def _meeting_point(self, place: Place, order: Message) -> Any:  # noqa: ANN401 - torch.distributed.Store
        if place.rank == 0 or place.workers == 1:
            return self._store.store
        import torch.distributed as dist

        from bftrain_elastic.groups import FORMING

        host, port = order["store"]
        return dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=FORMING)

    def _finish(self, place: Place) -> None:
        """Know that the script is done; the last to leave find nobody missing."""
        if place.rank == 0:
            save(self._state)
        self._channel.say({"say": "done", "step": self._inner.step})
        with suppress(RuntimeError):
            self._inner.group.largest(0)
        leave_group(self._state)

    def _leave(self, *, save_first: bool) -> NoReturn:
        """End this worker: what comes after ``run`` in the script is for those who finish."""
        if save_first:
            save(self._state)
        raise SystemExit(0)

    def _say_ready(self, generation: int, reason: str) -> None:
        step = self._inner.step if self._holds_state else _NOTHING
        store = [self._store.host, self._store.port]
        self._channel.say({"say": "ready", "step": step, "generation": generation, "store": store, "reason": reason})


def _once(state: State, train: Train, channel: Channel | None) -> None:
    """Train in the one group that the environment names, from the last commit in the folder on."""
    workers, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    place = Place(0, rank, workers, int(os.environ.get(SIZE, str(workers))))
    own = inner(state)
    if own.folder is not None:
        _stop_when_told(state)
    if channel is not None:
        own.tell = lambda what, step: channel.say({"say": what, "step": step})
        progress.use(progress.through(channel, state, place))
    _join_once(state, place)
    stopped = False
    try:
        train(state)
    except Regroup:
        stopped = True
    if rank == 0:
        save(state)
    leave_group(state)
    if stopped:
        raise SystemExit(0)
    if channel is not None:
        channel.say({"say": "done", "step": own.step})


def _join_once(state: State, place: Place) -> None:
    group = inner(state).group
    group.join(place, _named_store(place) if place.workers > 1 else None)
    if place.rank == 0:
        tidy(state)
        load(state)
    if place.workers > 1:
        tree = group.shared(capture(state) if place.rank == 0 else None)
        if place.rank:
            restore(state, tree, ours=True)
        group.settle()


def _stop_when_told(state: State) -> None:
    """Let SIGTERM end the training at the next commit, where all workers know of it."""
    asked = 0

    def note(_number: int, _frame: object) -> None:
        nonlocal asked
        asked = 1

    signal.signal(signal.SIGTERM, note)
    inner(state).asked = lambda: asked


def _named_store(place: Place) -> Any:  # noqa: ANN401 - torch.distributed.Store
    """Give the meeting point that torchrun's environment names; rank 0 opens it, on that address alone."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    listen_on(os.environ.get(ADDRESS, address))
    if place.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return Store(address, port).store
    import torch.distributed as dist

    return dist.TCPStore(address, port, is_master=False, wait_for_workers=False)
