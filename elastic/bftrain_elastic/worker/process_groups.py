"""torch.distributed process groups that form and dissolve while the processes stay."""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from bftrain_elastic.wire.network_interfaces import networking
from bftrain_elastic.worker.lazy_torch import dist, torch
from bftrain_elastic.worker.state_tree import StateTree

FORMING: Final = timedelta(seconds=20)  # time that members wait for each other while a group forms
TRAINING: Final = timedelta(minutes=30)  # the same while they train; torch's own default for Gloo
# Version of the protocol by which members send and compare states. Workers of other versions never meet: after an
# update of a running site, its groups continue without new workers
_MEETING: Final = "bftrain/4"
_TORCHS_HOOK: Final = "_distributed_excepthook"  # what torch sets as sys.excepthook when a group forms
# Words of Gloo and NCCL for a lost member: Gloo has no error class for it, but names its source file
_LOST: Final = (
    "gloo",
    "nccl",
    "connection closed by peer",
    "connection reset by peer",
    "process group",
    "broken pipe",
    "operation timed out",
)


@dataclass(frozen=True, slots=True)
class GroupRank:
    """A worker's place in a group: its generation, rank, number of workers and number of nodes."""

    generation: int = 0
    rank: int = 0
    workers: int = 1
    size: int = 1


class OpenSocket(NamedTuple):
    """A socket: its descriptor, which may be reused after it is closed, and its inode, which is unique."""

    number: int
    inode: int


class GroupStore:
    """A store for other workers at ``address``; it listens on this address only."""

    def __init__(self, address: str, port: int = 0) -> None:
        listener = socket.create_server((address, port), backlog=1024)
        self.host, self.port = listener.getsockname()[:2]
        self.store = dist.TCPStore(
            self.host,
            self.port,
            is_master=True,
            wait_for_workers=False,
            timeout=FORMING,
            master_listen_fd=listener.detach(),
        )


def listen_on(address: str) -> None:
    """Make Gloo and NCCL use the interface with ``address``, unless the environment sets another one."""
    for name, value in networking(address).items():
        os.environ.setdefault(name, value)


def own_gpu() -> int:
    """Return the number of the worker's GPU: the only visible one, or under torchrun the local rank."""
    return int(os.environ.get("LOCAL_RANK", "0")) % int(torch.cuda.device_count())


def aside(tree: StateTree) -> AbstractContextManager[object]:
    """Run on a separate CUDA stream: the GPU may be stuck in earlier work on the default one."""
    if not any(one.device.type == "cuda" for one in tree.tensors.values()):
        return nullcontext()
    stream: AbstractContextManager[object] = torch.cuda.stream(torch.cuda.Stream())
    return stream


class ProcessGroup:
    """The current group of this process, if any."""

    def __init__(self) -> None:
        self.place = GroupRank()
        self._before: set[OpenSocket] = set()
        self._joined = False
        self._hook: Callable[..., object] = sys.excepthook

    def join(self, place: GroupRank, store: Any) -> None:  # noqa: ANN401 - torch.distributed.Store
        """Become rank ``place.rank`` of a new group."""
        self.place = place
        if place.workers > 1:
            self._form(store)

    def form_alone(self) -> None:
        """Make a single-worker group, for code that needs a group."""
        self._form(dist.HashStore())

    def _form(self, store: Any) -> None:  # noqa: ANN401 - torch.distributed.Store
        if torch.cuda.is_available():
            torch.cuda.set_device(own_gpu())
        self._before = sockets()
        self._hook = sys.excepthook
        self._joined = True
        restart_group_count()
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
            store=dist.PrefixStore(f"{_MEETING}/{self.place.generation}", store),
            rank=self.place.rank,
            world_size=self.place.workers,
            timeout=FORMING,
        )

    def settle(self) -> None:
        """Wait until all members have met, and remove the short timeout of the start."""
        self.largest(0)
        if self._joined:
            dist.distributed_c10d._set_pg_timeout(TRAINING)  # noqa: SLF001 - there is no public way

    def leave(self, *, broken: bool = False) -> None:
        """Leave the group, if any. Leaving a ``broken`` one releases members that wait for this one."""
        if broken:
            self.abort()
        if self._joined:
            if torch.cuda.is_available() and not broken:
                destroy_in_background()
            else:
                destroy_groups()
            # Otherwise each group would wrap the hook of the previous one
            if getattr(sys.excepthook, "__name__", "") == _TORCHS_HOOK:
                sys.excepthook = self._hook
        self._joined = False  # keep the earlier sockets: another thread may be in abort()

    def abort(self) -> None:
        """Cut the connections to all members, so that no member waits for a dead one. Callable from any thread."""
        if not self._joined:
            return
        cut(sockets() - self._before)
        group = dist.group.WORLD
        if group is not None and torch.cuda.is_available():
            with suppress(RuntimeError):  # already aborted
                group.abort()  # torch's own function would also make torch forget the group, which is in use

    def largest(self, number: int) -> int:
        """Return the largest of all members' numbers."""
        return self.largest_each([number])[0]

    def largest_each(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return the largest of each number over all members; all must pass equally many."""
        return numbers if self.place.workers == 1 else self._reduced(numbers, "int64", "MAX")

    def gathered(self, numbers: Sequence[float], dtype: str = "float64") -> list[list[float]]:
        """Return the numbers of each member; all must pass equally many."""
        count, place = len(numbers), self.place
        rows = [0.0] * (count * place.workers)
        rows[place.rank * count : (place.rank + 1) * count] = numbers
        rows = self._reduced(rows, dtype, "SUM")
        return [rows[start : start + count] for start in range(0, len(rows), count)]

    def sums(self, numbers: Sequence[float]) -> list[float]:
        """Return the sum of each number over all members."""
        return self._reduced(numbers, "float64", "SUM")

    def _reduced(self, numbers: Sequence[float], dtype: str, operation: str) -> list[Any]:
        box = torch.tensor(numbers, dtype=getattr(torch, dtype))
        dist.all_reduce(box, getattr(dist.ReduceOp, operation))
        results: list[Any] = box.tolist()
        return results


def lost(error: RuntimeError) -> bool:
    """Return whether an error means that another member is gone, rather than a mistake in the script."""
    return isinstance(error, dist.DistError) or any(word in str(error).lower() for word in _LOST)


def warm_up() -> None:
    """Do the operations that are slow the first time: connections, gradients, a wrapped model."""
    from torch.nn.parallel import DistributedDataParallel

    hook = sys.excepthook
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        model = DistributedDataParallel(torch.nn.Linear(2, 1))
        model(torch.zeros(1, 2)).sum().backward()
        box = torch.zeros(1)
        dist.all_reduce(box)
        dist.broadcast(box, src=0)
    finally:
        destroy_groups()
        sys.excepthook = hook


def sockets() -> set[OpenSocket]:
    """Return all sockets of this process."""
    opened = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            about = path.stat()
            if stat.S_ISSOCK(about.st_mode):
                opened.add(OpenSocket(int(path.name), about.st_ino))
    return opened


def cut(opened: Iterable[OpenSocket]) -> None:
    """Shut down the network sockets among these; waiting threads get an error. Callable from any thread."""
    for number, inode in opened:
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
            connection.getpeername()  # only connected sockets: Gloo does not survive a shutdown of its listeners
            inet = connection.family in {socket.AF_INET, socket.AF_INET6}
            if inet and os.fstat(connection.fileno()).st_ino == inode:
                connection.shutdown(socket.SHUT_RDWR)


# A group's destructor waits for Gloo's threads with Python's lock, and these may be waiting for the lock to release a
# tensor. So groups that were left are kept until their threads have long been idle.
_left: Final[deque[object]] = deque(maxlen=2)
_threads: Final[deque[threading.Thread]] = deque()
_MOST_CLOSING_GROUPS: Final = 2  # groups being shut down alongside the current one; each has GPU memory
_PATIENCE_S: Final = 30.0  # time that a new group waits for the shutdown; a group in a CUDA graph may never finish


def destroy_groups() -> None:
    """Destroy all of torch's groups, including broken ones and subgroups of the script."""
    c10d = dist.distributed_c10d
    _left.append(list(c10d._world.pg_names))  # noqa: SLF001 - there is no public way to subgroups
    for end in (dist.destroy_process_group, c10d._abort_process_group, _forget):  # noqa: SLF001 - as above
        if not dist.is_initialized():
            break
        with suppress(RuntimeError, ValueError, AssertionError):  # a broken group cannot be closed properly
            end()
    restart_group_count()


def destroy_in_background() -> None:
    """Make torch forget all of its groups, and let a thread shut them down in torch's usual sequence."""
    names = dist.distributed_c10d._world.pg_names  # noqa: SLF001 - there is no public way to subgroups
    groups = sorted(names, key=names.__getitem__, reverse=True)
    _left.append(groups)
    _forget()
    restart_group_count()
    thread = threading.Thread(target=_shut_down, args=(groups,), name="bftrain-groups", daemon=True)
    thread.start()
    _threads.append(thread)
    while len(_threads) > _MOST_CLOSING_GROUPS:
        _threads.popleft().join(_PATIENCE_S)


def _shut_down(groups: Sequence[Any]) -> None:
    for one in groups:
        with suppress(RuntimeError):  # the other members have already left
            one.shutdown()


def restart_group_count() -> None:
    """Reset torch's count of groups, so that the next group has the same number as in a fresh process.

    Members of a group find each other in the store under the number of the group, and every process counts groups
    independently. torch resets the count when a group is destroyed, but not after a group that did not form.
    """
    if not dist.is_initialized():
        dist.distributed_c10d._world.group_count = 0  # noqa: SLF001 - there is no public way


def _forget() -> None:
    """Clear torch's lists of groups, as destroy_process_group does when it succeeds."""
    c10d = dist.distributed_c10d
    world = c10d._world  # noqa: SLF001 - there is no public way
    c10d._update_default_pg(None)  # noqa: SLF001 - as above
    for known in ("pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "pg_to_tag", "tags_to_pg"):
        getattr(world, known).clear()
    world.pg_coalesce_state.clear()
    c10d._unregister_all_process_groups()  # noqa: SLF001 - as above
