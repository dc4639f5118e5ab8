"""The values of a state as a tree, its copies, and saving it."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.errors import BadCommit
from bftrain_elastic.wire.messages import Message
from bftrain_elastic.worker import checkpoint_file
from bftrain_elastic.worker.background_save import AT_ONCE_BYTES, BackgroundJob, fits_in_memory
from bftrain_elastic.worker.no_stream import NoStream
from bftrain_elastic.worker.process_groups import ProcessGroup, aside
from bftrain_elastic.worker.shard_keeper import ShardKeeper, StateBase
from bftrain_elastic.worker.state_tree import (
    LargeValues,
    NamedValues,
    StateTree,
    alike,
    as_bytes,
    copied,
    put_back,
)

_LARGEST_VALUE_BYTES: Final = 65536  # of a tensor that is looked at in each commit
NO_STEP: Final = -1
OWN: Final = "_bftrain"  # the attribute of a state in which its Inner stands
STEP: Final = "bftrain.step"
LINEAGE: Final = "bftrain.lineage"
SAMPLES: Final = "bftrain.samples"
SHARDS: Final = "bftrain.shards"  # on disk: the files of the workers' shares
_SAVING_SHARE: Final = 0.05  # of the time may go into writing commits,
COPYING_SHARE: Final = 0.05  # and into copying those that are large
REPORTS_S: Final = 0.2  # between two remarks on where the state is: at most five a second
_DESCRIBED: Final = 2  # the commit of a group at which the state has all its parts; an optimizer makes some in a step
_REASON_LETTERS: Final = 300
_RESCUE_S: Final = 60.0  # how long another thread waits for the training's own one to copy or write
_SPARES: Final = 1  # copies beside the last one: while it is written, others are made
_AGAIN_S: Final = 5.0  # after which a commit that could not be written is tried again


class StateInternals:
    """The internal part of a :class:`bftrain_elastic.State`, beside the script's values."""

    def __init__(self) -> None:
        self.group = ProcessGroup()
        self.folder: Path | None = None
        self.step = 0
        self.samples = 0  # of all steps since the one ``samples_since``
        self.samples_since = 0
        self.counted = 0  # the last step that the script counted itself
        self.commit_step = 0  # the step of the last commit
        self.lineage = 0  # how often a run went on from the folder
        self.large = LargeValues()
        self.mixed = False  # a state arrived in part: the tensors are neither the script's first ones nor any others
        self.copy: StateTree | None = None  # of the last commit
        self.copy_step = NO_STEP
        self.copy_at = 0.0  # when the next copy may be made
        self.keeps_alone = False  # copies are kept even where there is no other worker
        self.prepared: StateTree | None = None  # tensors for a state that will arrive
        self.describe: Callable[[StateTree], None] = lambda _tree: None  # for those that will need memory for it
        self.spares: list[StateTree] = []  # memory for other copies, while one is being written
        self.no_room = False  # there is no such memory
        self.saving = BackgroundJob()
        self.stream = NoStream()
        self.save_at = 0.0
        self.save_soon = False  # before save_at too
        self.lock = threading.RLock()  # of the copy, and of writing: another thread may have to rescue them
        self.disk_reported_at = 0.0
        self.disk_unreported: Message | None = None  # the last write, until it is reported
        self.parallel: Any = None
        self.batch_seen = 0.0  # samples of this worker that its model took last
        self.wrapped: list[Any] = []  # models in DistributedDataParallel, of this group
        self.asked: Callable[[], int] = lambda: 0  # the largest generation that we are asked to gather for
        self.leaving: Callable[[], Collection[int]] = lambda: ()  # the ranks that will not be in that group
        self.shards: ShardKeeper | None = None  # of what is divided among the workers
        self.report: Callable[[Message], None] = lambda _message: None
        self.reported_at = 0.0
        self.place = "script"  # what the worker is doing, in a word
        self.commits = 0  # how often commit() was entered in this group
        self.committed_at = 0.0
        self.pace_s = 0.0  # how long it may be from one commit to the next

    @property
    def keeps(self) -> bool:
        """Whether each commit keeps a copy."""
        return self.keeps_alone or self.group.place.workers > 1


def inner(state: StateBase) -> StateInternals:
    """Return the internal part of a state."""
    found: StateInternals = state.__dict__[OWN]
    return found


def has_state_dict(value: object) -> bool:
    """Return whether a value is read and restored in place by its own methods."""
    return hasattr(value, "state_dict")


def compared_values(state: StateBase) -> NamedValues:
    """Return what is compared between workers in each commit: plain values, and small tensors in them."""
    own = inner(state)
    found = NamedValues()
    found.add(STEP, own.step)
    found.add(LINEAGE, own.lineage)
    found.add(SAMPLES, [own.samples, own.samples_since])
    held = vars(state)
    for name in sorted(held):
        if name != OWN and not has_state_dict(held[name]):
            found.add_small(name, held[name], _LARGEST_VALUE_BYTES)
    return found


def capture(state: StateBase, compared: NamedValues | None = None) -> StateTree:
    """Return the present state, beginning with the compared values; its tensors are shared."""
    found = (compared or compared_values(state)).copy()
    there = {OWN, *found.names}
    for name, value in vars(state).items():
        if name not in there:
            found.add(name, value.state_dict() if has_state_dict(value) else value)
    return found.tree()


def restore(state: StateBase, tree: StateTree, *, ours: bool = False) -> None:
    """Set the state to ``tree``; if that is ``ours``, its tensors may become the state's own."""
    values = (put_back(tree, capture(state)) or (tree if ours else copied(tree, None))).unfolded()
    own = inner(state)
    own.step = own.commit_step = int(values.pop(STEP))
    own.lineage = int(values.pop(LINEAGE, 0))
    own.samples, own.samples_since = values.pop(SAMPLES, (0, own.step))
    named = values.pop(SHARDS, None)
    if own.shards is not None and named is not None:
        own.shards.named = str(named)
    for name, value in values.items():
        present: Any = vars(state).get(name)
        if hasattr(present, "load_state_dict"):
            present.load_state_dict(value)
            if hasattr(present, "zero_grad"):  # what a broken step left behind
                present.zero_grad()
        else:
            setattr(state, name, value)


def copy_is_due(own: StateInternals) -> bool:
    """Return whether the copy of a commit is due: unless copying a large state took long, or it is to be saved."""
    now = time.monotonic()
    saves = own.folder is not None and not own.saving.busy and (own.save_soon or now >= own.save_at)
    return own.group.place.rank == 0 and (saves or now >= own.copy_at)


def keep(state: StateBase, compared: NamedValues | None = None) -> StateTree:
    """Copy the state as the point to return to; return the copy."""
    own = inner(state)
    begun = time.monotonic()
    with own.lock:
        tree, room = capture(state, compared), _room(own)
        if room is own.copy:
            own.copy_step = NO_STEP  # while the copy is neither the old one nor the new one
        fresh = copied(tree, room)
        _take_copy(own, fresh, room)
    if sum(one.nbytes for one in fresh.tensors) > AT_ONCE_BYTES:
        own.copy_at = time.monotonic() + (time.monotonic() - begun) * (1 / COPYING_SHARE - 1)
    return fresh


def _room(own: StateInternals) -> StateTree | None:
    """Return an older copy that is neither written nor sent: its memory may be used for the next one."""
    free = (one for one in (own.copy, *own.spares) if not (own.saving.holds(one) or own.stream.holds(one)))
    return next((one for one in free if one is not None), None)


def _take_copy(own: StateInternals, copy: StateTree, room: StateTree | None) -> None:
    """Make ``copy`` the point to return to.

    It is in the memory of ``room``, if any, and the older one is reused later.
    """
    if room is not own.copy:
        own.spares = [one for one in (*own.spares, own.copy) if one is not None and one is not room][-_SPARES:]
    own.copy, own.copy_step = copy, own.step


class CopyInPieces:
    """Copies a state as the point to return to, part by part, while it is being sent."""

    def __init__(self, own: StateInternals, tree: StateTree) -> None:
        import torch

        self._own, self._tensors = own, tree.tensors
        own.copy_step = NO_STEP  # the memory of the old copy is used
        self._room = room = _room(own)
        before = room if room is not None and alike(room, tree) else None
        self._copy = StateTree(
            tree.plain, before.tensors if before else [torch.empty_like(one) for one in tree.tensors]
        )

    def take(self, number: int, start: int, stop: int) -> None:
        """Copy these bytes of a tensor, which have arrived."""
        here, there = self._copy.tensors[number], self._tensors[number]
        if here.is_contiguous() and there.is_contiguous():
            as_bytes(here)[start:stop].copy_(as_bytes(there)[start:stop])
        elif stop == there.nbytes:
            here.copy_(there)

    def finish(self) -> None:
        """Complete the copy after all parts were copied."""
        with self._own.lock:
            _take_copy(self._own, self._copy, self._room)


def rescue(state: StateBase) -> None:
    """Save the copy of the last commit to the folder, unless a newer one is there. From any thread."""
    own = inner(state)
    if own.shards is not None:  # a worker alone does not hold the whole of it
        return
    if not own.lock.acquire(timeout=_RESCUE_S):  # the training's own thread is stuck in a copy or in a write
        return
    try:
        if own.folder is None or own.copy is None or own.copy_step == NO_STEP:
            return
        end_background_save(own, own.copy_step, _RESCUE_S)
        if (checkpoint_file.step_of(own.folder) or 0) < own.copy_step:
            with aside(own.copy):
                checkpoint_file.save(own.folder, own.copy, own.copy_step, own.lineage)
            own.report({"type": "on_disk", "step": own.copy_step})
    finally:
        own.lock.release()


def save(state: StateBase, *, report_later: bool = False) -> None:
    """Save the state to its folder; the time this takes decides how soon it is done again.

    With ``report_later`` it is reported at most five times a second; :func:`report_on_disk` reports the last one.
    """
    own = inner(state)
    if own.folder is None:
        return
    if own.shards is not None:
        own.shards.save(state)
        return
    end_background_save(own, own.step)
    begun = time.monotonic()
    with own.lock:
        checkpoint_file.save(own.folder, capture(state), own.step, own.lineage)
    report_saved(own, own.step, begun, report_later=report_later)


def report_saved(own: StateInternals, step: int, begun: float, *, report_later: bool = False) -> None:
    """Report that a state is on disk; the time that this took decides when it is due again."""
    ended = time.monotonic()
    own.save_at = ended + (ended - begun) * (1 / _SAVING_SHARE - 1)
    own.disk_unreported = {"type": "on_disk", "step": step, "took_s": round(ended - begun, 3)}
    if not report_later or ended - own.disk_reported_at > REPORTS_S:
        report_on_disk(own)


def end_background_save(own: StateInternals, step: int, timeout_s: float | None = None) -> None:
    """Stop the background save; one of ``step`` itself may finish."""
    if own.saving.busy and own.saving.step == step:
        own.saving.wait(timeout_s)
    else:
        own.saving.stop(timeout_s)


def report_on_disk(own: StateInternals) -> None:
    """Report the last save, if it was not reported yet."""
    if own.disk_unreported is not None:
        own.disk_reported_at = time.monotonic()
        own.report(own.disk_unreported)
        own.disk_unreported = None


def save_if_due(state: StateBase) -> None:
    """Save the state to its folder, unless that was done lately; if that fails the training goes on.

    A large one is saved by a thread, from a copy of its own: the training waits only for that copy, which a commit
    among several workers has made already.
    """
    own = inner(state)
    if own.shards is not None:  # they are saved by all workers
        return
    if own.commits == _DESCRIBED:
        own.describe(capture(state))
    try:
        own.saving.raise_error()
        if own.folder is None or own.saving.busy or not (own.save_soon or time.monotonic() >= own.save_at):
            return
        own.save_soon = False
        if not _begin_save(own, state):
            save(state, report_later=True)
    except (OSError, BadCommit) as error:
        warn_not_saved(own, own.step, error)


def warn_not_saved(own: StateInternals, step: int, error: Exception) -> None:
    """Report that a state could not be written, and try it again soon."""
    own.save_at, own.save_soon = time.monotonic() + _AGAIN_S, False
    own.report({"type": "not_on_disk", "step": step, "reason": str(error)[:_REASON_LETTERS]})
    words = f"the state of step {step} is not on disk: {error}; it is tried again in {_AGAIN_S:g} s"
    warnings.warn(words, RuntimeWarning, stacklevel=4)


def _begin_save(own: StateInternals, state: StateBase) -> bool:
    """Start to save a large state in a thread, or to allocate the copy for it; return whether that was done."""
    tree = capture(state)
    size = sum(one.nbytes for one in tree.tensors)
    if size <= AT_ONCE_BYTES:
        return False
    if not _has_room(own, tree):
        missing = _SPARES + 1 - sum(one is not None and alike(one, tree) for one in (own.copy, *own.spares))
        count = next((many for many in range(missing, 0, -1) if fits_in_memory(many * size)), 0)
        if own.no_room or not count:
            return False
        own.save_soon = True
        own.saving.start(partial(_make_room, own, tree, count))
        return True
    copy = own.copy if own.copy is not None and own.copy_step == own.step else keep(state)
    own.saving.start(partial(_write_copy, own, copy, own.step, own.lineage), copy, own.step)
    return True


def _has_room(own: StateInternals, tree: StateTree) -> bool:
    """Return whether there is memory for the copies that are needed during a save."""
    current = own.copy_step == own.step
    if any(one.device.type != "cpu" for one in tree.tensors) or (current and not own.keeps):
        return True  # the copy that is written is changed by no commit
    rooms = own.spares if current else [own.copy, *own.spares]
    return any(one is not None and alike(one, tree) for one in rooms)


def _make_room(own: StateInternals, tree: StateTree, count: int) -> None:
    """Allocate memory for a copy: the kernel takes longer for it than copying does."""
    import torch

    try:
        for _ in range(count):
            own.spares.append(StateTree(tree.plain, [torch.empty_like(one).zero_() for one in tree.tensors]))
    except (RuntimeError, MemoryError):  # torch raises the first
        own.no_room = True


def _write_copy(own: StateInternals, copy: StateTree, step: int, lineage: int) -> None:
    folder, begun = own.folder, time.monotonic()
    if folder is None:
        return
    with aside(copy):
        checkpoint_file.save(folder, copy, step, lineage, own.saving.go_on)
    report_saved(own, step, begun)


def save_if_only_here(state: StateBase) -> None:
    """Save the state if the group has one node and the folder holds an older one: no other copy exists."""
    own = inner(state)
    if own.folder is None or own.group.place.size > 1 or own.group.place.rank:
        return
    try:
        newer = own.step > (checkpoint_file.step_of(own.folder) or 0)
    except (OSError, BadCommit):
        newer = True  # saving will say what is wrong
    own.save_soon = True
    if newer:
        save_if_due(state)
        report_on_disk(own)


def load(state: StateBase) -> bool:
    """Read the state from its folder; return whether there was one."""
    own = inner(state)
    found = checkpoint_file.load(own.folder) if own.folder is not None else None
    if found is None:
        return False
    restore(state, found.tree, ours=True)
    if own.shards is not None and not own.shards.named:
        raise BadCommit("holds no shards: a script without ShardedTraining wrote it", where=str(own.folder))
    own.lineage = found.lineage + 1
    return True


def tidy(state: StateBase) -> None:
    """Leave saving to rank 0, which removes unfinished files of killed workers from the folder."""
    own = inner(state)
    if own.group.place.rank:
        own.saving.stop()
    elif own.folder is not None:
        checkpoint_file.tidy(own.folder)
