"""The values of a state as a tree, and its copies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, Protocol

from bftrain_elastic.errors import BadScript
from bftrain_elastic.wire.messages import WireMessage
from bftrain_elastic.wire.worker_messages import StateOnDisk
from bftrain_elastic.worker.checkpoint_file import AT_ONCE_BYTES, BackgroundJob, fits_in_memory
from bftrain_elastic.worker.lazy_torch import torch
from bftrain_elastic.worker.outside_copy import OutsideCopy
from bftrain_elastic.worker.process_groups import ProcessGroup
from bftrain_elastic.worker.state_tree import LargeValues, NamedValues, StateTree, alike, as_bytes, copied, put_back

_LARGEST_VALUE_BYTES: Final = 65536  # largest tensor, in bytes, that commits compare by value
NO_STEP: Final = -1
OWN: Final = "_bftrain"  # attribute of a state that contains its StateInternals
STEP: Final = "bftrain.step"
LINEAGE: Final = "bftrain.lineage"
SAMPLES: Final = "bftrain.samples"
FROZEN: Final = "bftrain.frozen"  # names of frozen parameters, per model
SHARDS: Final = "bftrain.shards"  # folder with the workers' shares, next to the state on disk
COPYING_SHARE: Final = 0.05  # maximum share of run time spent on copies of large states
_OUTSIDE_SHARE: Final = 0.1  # the same for a task on one node, whose only copies are on another node
REPORTS_S: Final = 0.2  # minimum interval between reports on the state's location
SPARES: Final = 1  # copies in addition to the latest one: commits continue while it is written
_RECENT_S: Final = 60.0  # age below which a copy of a large state is recent enough until the next commit


class StateBase:
    """The base of :class:`bftrain_elastic.State`: its attributes are saved, and compared between workers."""


class ShardKeeper(Protocol):
    """Commits, saves and restores the sharded part of a state, together with the rest."""

    named: str  # folder with the shares of the state that was read or written last

    def commit(self, state: StateBase, *, planned: bool) -> None:
        """Write the state if a save is due or the group is about to change; called by all members."""

    def save(self, state: StateBase) -> None:
        """Write the state from one worker."""

    def save_together(self, state: StateBase) -> None:
        """Write the state; called by all members."""

    def regroup(self, state: StateBase, *, holds: bool) -> None:
        """Restore the state on disk, or the script's initial state; called by all members.

        ``holds``: whether this worker has the state of the previous group.
        """


class StateGroup(ProcessGroup):
    """The current group, its wrapped models, and this worker's activity."""

    def __init__(self) -> None:
        super().__init__()
        self.parallel: Any = None
        # Parameters of each wrapped model, with their trained flag at wrapping time
        self.wrapped_trains: list[tuple[int, bool]] = []
        self.wrapped: list[Any] = []  # models in DistributedDataParallel
        self.asked: Callable[[], int] = lambda: 0  # latest generation for which the manager asked us to leave the group
        self.activity = "script"  # current activity of the worker, as one word
        self.commits = 0  # number of commit() calls in this group
        self.committed_at = 0.0
        self.pace_s = 0.0  # estimated upper limit of the time between commits


class StateCopies:
    """Copies of the state in memory, and reusable memory for more."""

    def __init__(self) -> None:
        self.last: StateTree | None = None  # latest copy
        self.step = NO_STEP  # step of the latest copy
        self.made_at = float("-inf")
        self.due_at = 0.0  # earliest time of the next copy
        self.alone = False  # keep copies even without other workers
        self.spares: list[StateTree] = []  # memory for further copies while one is being written
        self.no_room = False  # allocating that memory failed
        self.prepared: StateTree | None = None  # tensors allocated in advance for the state that rank 0 will send
        # A state arrived in part: the tensors contain neither the script's initial values nor another complete state
        self.mixed = False
        self.large = LargeValues()
        self.lock = threading.RLock()  # guards the copy and its writing: another thread may have to rescue them

    @property
    def recent(self) -> bool:
        """Whether a large state was copied recently, so that a change of the group need not wait for a copy."""
        if self.last is None or self.step == NO_STEP or time.monotonic() - self.made_at > _RECENT_S:
            return False
        return self.last.size > AT_ONCE_BYTES

    def room(self, in_use: Callable[[object], bool]) -> StateTree | None:
        """Return an older copy with reusable memory: one that is neither being saved nor sent."""
        free = (one for one in (self.last, *self.spares) if not in_use(one))
        return next((one for one in free if one is not None), None)

    def take(self, copy: StateTree, room: StateTree | None, step: int) -> None:
        """Make ``copy`` the latest copy; it uses the memory of ``room``, if any. The previous copy becomes a spare."""
        if room is not self.last:
            spares = [one for one in (*self.spares, self.last) if one is not None and one is not room]
            self.spares = spares[-SPARES:]
        self.last, self.step, self.made_at = copy, step, time.monotonic()


class StateSaver:
    """The folder of the task, and when the state is written there."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.lineage = 0  # number of resumes from the folder
        self.job = BackgroundJob()
        self.due_at = 0.0
        self.soon = False  # save again before due_at
        self.unreported: StateOnDisk | None = None  # latest unreported write
        self.reported_at = 0.0
        # Announces the tree to workers that will need memory for it
        self.describe: Callable[[StateTree], None] = lambda _tree: None

    @property
    def due(self) -> bool:
        """Whether the state is due to be written."""
        return self.folder is not None and not self.job.busy and (self.soon or time.monotonic() >= self.due_at)


class StateProgress:
    """The steps and samples of the training, and their reporter."""

    def __init__(self) -> None:
        self.step = 0
        self.samples = 0  # samples of all steps since ``samples_since``
        self.samples_since = 0
        self.counted = 0  # latest step that the script counted itself
        self.commit_step = 0  # step of the latest commit
        self.report: Callable[[WireMessage], None] = lambda _message: None
        self.reported_at = 0.0


class StateInternals:
    """The internal part of a :class:`bftrain_elastic.State`, alongside the script's values."""

    def __init__(self) -> None:
        self.group = StateGroup()
        self.copies = StateCopies()
        self.saver = StateSaver()
        self.progress = StateProgress()
        self.outside = OutsideCopy()
        self.shards: ShardKeeper | None = None  # keeper of the sharded part

    @property
    def keeps(self) -> bool:
        """Whether each commit keeps a copy."""
        return self.copies.alone or self.group.place.workers > 1

    def in_use(self, tree: object) -> bool:
        """Return whether a thread is saving or sending a tree."""
        return self.saver.job.holds(tree) or self.outside.holds(tree)


def inner(state: StateBase) -> StateInternals:
    """Return the internal part of a state."""
    found: StateInternals = state.__dict__[OWN]
    return found


def has_state_dict(value: object) -> bool:
    """Return whether a value is read and restored in place by its own methods."""
    return hasattr(value, "state_dict")


def compared_values(state: StateBase) -> NamedValues:
    """Return the values that workers compare in each commit: plain values, and small tensors in them."""
    own = inner(state)
    found = NamedValues()
    found.add(STEP, own.progress.step)
    found.add(LINEAGE, own.saver.lineage)
    found.add(SAMPLES, [own.progress.samples, own.progress.samples_since])
    held = vars(state)
    for name in sorted(held):
        if name != OWN and not has_state_dict(held[name]):
            found.add_small(name, held[name], _LARGEST_VALUE_BYTES)
    return found


def capture(state: StateBase, compared: NamedValues | None = None) -> StateTree:
    """Return the current state, beginning with the compared values; its tensors are shared."""
    found = (compared or compared_values(state)).copy()
    there = {OWN, *found.names}
    own = inner(state)
    if own.shards is not None and own.shards.named:
        found.add(SHARDS, own.shards.named)
    models = {name: value for name, value in vars(state).items() if hasattr(value, "named_parameters")}
    found.add(FROZEN, {name: _frozen(model) for name, model in models.items()})
    for name, value in vars(state).items():
        if name not in there:
            found.add(name, value.state_dict() if has_state_dict(value) else value)
    return found.tree()


def restore(state: StateBase, tree: StateTree, *, ours: bool = False) -> None:
    """Set the state to ``tree``; with ``ours``, its tensors may become the state's own."""
    values = (put_back(tree, capture(state)) or (tree if ours else copied(tree, None))).unfolded()
    own = inner(state)
    own.progress.step = own.progress.commit_step = int(values.pop(STEP))
    own.saver.lineage = int(values.pop(LINEAGE, 0))
    own.progress.samples, own.progress.samples_since = values.pop(SAMPLES, (0, own.progress.step))
    named = values.pop(SHARDS, None)
    if own.shards is not None and named is not None:
        own.shards.named = str(named)
    frozen = values.pop(FROZEN, {})
    for name, value in values.items():
        present: Any = vars(state).get(name)
        if hasattr(present, "load_state_dict"):
            _load(name, present, value)
            if name in frozen and hasattr(present, "named_parameters"):
                _freeze(present, frozen[name])
            if hasattr(present, "zero_grad"):  # drop the gradients of a broken step
                present.zero_grad()
        else:
            setattr(state, name, value)


def _load(name: str, present: Any, value: Any) -> None:  # noqa: ANN401 - an object with load_state_dict, and its values
    """Load a value into an object in place."""
    try:
        present.load_state_dict(value)
    except (ValueError, KeyError, RuntimeError) as error:
        what = f"cannot load its values: {' '.join(str(error).split())}"
        fix = "create all its parts before run(), and freeze parts that are trained later"
        raise BadScript(what, where=f"state[{name!r}]", fix=fix) from error
    # An optimizer with its own load_state_dict may read another format
    if hasattr(present, "param_groups") and (type(present).load_state_dict is torch.optim.Optimizer.load_state_dict):
        _undo_casts(present, value)


def _undo_casts(optimizer: Any, saved: Any) -> None:  # noqa: ANN401 - torch.optim.Optimizer, and its state_dict
    """Restore the types of an optimizer's values: torch casts them to the type of their parameter.

    Otherwise, 32-bit values of 16-bit weights would be rounded, but only on new workers.
    """
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=True):
        present = optimizer.state.get(parameter, {})
        for name, one in saved["state"].get(number, {}).items():
            if hasattr(one, "dtype") and hasattr(present.get(name), "dtype") and present[name].dtype != one.dtype:
                present[name] = one.to(parameter.device)


def _frozen(model: Any) -> list[str]:  # noqa: ANN401 - torch.nn.Module
    """Return the names of the frozen parameters."""
    return [name for name, one in model.named_parameters() if not one.requires_grad]


def _freeze(model: Any, frozen: Collection[str]) -> None:  # noqa: ANN401 - torch.nn.Module
    """Freeze the named parameters, and train all others."""
    for name, one in model.named_parameters():
        if one.requires_grad == (name in frozen):
            one.requires_grad_(name not in frozen)


def copy_is_due(own: StateInternals) -> bool:
    """Return whether rank 0 should copy this commit: always, unless a previous copy was slow and no save is due."""
    return own.group.place.rank == 0 and (own.saver.due or time.monotonic() >= own.copies.due_at)


def sends_copy(state: StateBase) -> bool:
    """Return whether this worker is rank 0, its copy server lacks this commit, and the memory suffices for a copy."""
    own = inner(state)
    if own.group.place.rank or own.shards is not None or not own.outside.due:
        return False
    if own.saver.job.busy and (own.keeps or own.copies.room(own.in_use) is None):
        return False
    return own.copies.last is not None or fits_in_memory(capture(state).size)


def keep(state: StateBase, compared: NamedValues | None = None) -> StateTree:
    """Copy the state, to return to it after a failure; return the copy."""
    own = inner(state)
    begun = time.monotonic()
    with own.copies.lock:
        tree, room = capture(state, compared), own.copies.room(own.in_use)
        if room is own.copies.last:
            own.copies.step = NO_STEP  # the copy is incomplete
        fresh = copied(tree, room)
        own.copies.take(fresh, room, own.progress.step)
    if fresh.size > AT_ONCE_BYTES:
        share = _OUTSIDE_SHARE if own.outside.place is not None and own.group.place.size == 1 else COPYING_SHARE
        own.copies.due_at = time.monotonic() + (time.monotonic() - begun) * (1 / share - 1)
    return fresh


def keep_unless_recent(state: StateBase) -> None:
    """Copy the state of a new group now, or at the group's first commit if there is a recent copy."""
    own = inner(state)
    if own.copies.step == own.progress.step:
        return
    if own.copies.recent:
        own.copies.due_at = 0.0
    else:
        keep(state)


class CopyInPieces:
    """Copies a state part by part while it is being sent; the copy becomes the latest one."""

    def __init__(self, own: StateInternals, tree: StateTree) -> None:
        self._own = own
        own.copies.step = NO_STEP  # the old copy's memory is reused
        self._room = room = own.copies.room(own.in_use)
        if room is None or not alike(room, tree):
            room = StateTree(tree.plain, {name: torch.empty_like(one) for name, one in tree.tensors.items()})
        self._copy = StateTree(tree.plain, room.tensors)
        self._tensors = [(room.tensors[name], one) for name, one in tree.tensors.items()]

    def take(self, number: int, start: int, stop: int) -> None:
        """Copy these received bytes of a tensor."""
        here, there = self._tensors[number]
        if here.is_contiguous() and there.is_contiguous():
            as_bytes(here)[start:stop].copy_(as_bytes(there)[start:stop])
        elif stop == there.nbytes:
            here.copy_(there)

    def finish(self) -> None:
        """Complete the copy after all parts were copied."""
        with self._own.copies.lock:
            self._own.copies.take(self._copy, self._room, self._own.progress.step)
