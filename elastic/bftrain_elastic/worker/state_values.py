"""The internal parts of a state: its values as a tree, its copies in memory, and its saving to the folder."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.errors import BadCommit, BadMessage, BadScript
from bftrain_elastic.wire.messages import WireMessage
from bftrain_elastic.wire.worker_messages import NO_STEP, CopyPlace, StateMoving, StateNotOnDisk, StateOnDisk
from bftrain_elastic.worker import checkpoint_file, outside_copy
from bftrain_elastic.worker.checkpoint_file import AT_ONCE_BYTES, BackgroundJob, SavedCommit, fits_in_memory
from bftrain_elastic.worker.lazy_torch import torch
from bftrain_elastic.worker.outside_copy import OutsideCopy
from bftrain_elastic.worker.process_groups import ProcessGroup, aside
from bftrain_elastic.worker.state_tree import LargeValues, NamedValues, StateTree, alike, copied, put_back

_LARGEST_VALUE_BYTES: Final = 65536  # largest tensor, in bytes, that commits compare by value
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
_SAVING_SHARE: Final = 0.05  # maximum share of run time for writing commits
_DESCRIBED: Final = 2  # commit of a group at which the state is complete; an optimizer makes some parts in a step
REASON_LETTERS: Final = 300
_RESCUE_S: Final = 60.0  # time that another thread waits for the training thread to copy or write
_MOVE_REPORT_S: Final = 1.0
_AGAIN_S: Final = 5.0  # delay before a failed write of a commit is retried
_RECENT_S: Final = 60.0  # age below which a copy of a large state is recent enough until the next commit


class StateBase:
    """The base of :class:`bftrain_elastic.State`: its attributes are saved, and compared between workers."""


class StateGroup(ProcessGroup):
    """The current group, the model wrapped for it, and this worker's activity."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting: Any = None  # GroupStore where the next group meets if this worker leads it
        self.parallel: Any = None  # the wrapped model; None: not wrapped yet
        self.wrapped_trains: list[tuple[int, bool]] = []  # its parameters, and whether they were trained then
        self.asked: Callable[[], int] = lambda: 0  # latest generation for which the manager asked us to leave the group
        self.activity = "script"  # current activity of the worker, for notes on stalls
        self.commits = 0  # number of commit() calls in this group
        self.committed_at = 0.0  # monotonic time of the latest commit
        self.pace_s = 0.0  # estimated upper limit of the time between commits


class StateCopies:
    """Copies of the state in memory, and reusable memory for more."""

    def __init__(self) -> None:
        self.last: StateTree | None = None  # latest copy
        self.step = NO_STEP  # step of the latest copy
        self.made_at = float("-inf")
        self.due_at = 0.0  # earliest time of the next copy
        self.alone = False  # a worker keeps copies even if it is the only one
        self.spares: list[StateTree] = []  # memory for further copies while one is being written
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

    def take(self, copy: StateTree, step: int) -> None:
        """Make ``copy`` the latest copy, in new memory or an older copy's; the previous copy becomes a spare."""
        if self.last is not None and self.last.tensors is not copy.tensors:
            older = [one for one in (*self.spares, self.last) if one.tensors is not copy.tensors]
            self.spares = [one for one in older if alike(one, copy)][-SPARES:]
        self.last, self.step, self.made_at = copy, step, time.monotonic()


class StateSaver:
    """Saves the state to the folder of the task and loads it: immediately, or from a copy in a background thread."""

    def __init__(self, own: StateInternals, state: StateBase) -> None:
        self._own, self._state = own, state
        self.folder: Path | None = None
        self.lineage = 0  # number of resumes from the folder
        self.job = BackgroundJob()
        self.due_at = 0.0
        self.soon = False  # save again before due_at
        self.unreported: StateOnDisk | None = None  # latest unreported write
        self.reported_at = 0.0
        # Announces the structure of the state, so that new workers can prepare memory
        self.describe: Callable[[StateTree], None] = lambda _tree: None

    @property
    def due(self) -> bool:
        """Whether the state is due to be written."""
        return self.folder is not None and not self.job.busy and (self.soon or time.monotonic() >= self.due_at)

    def rescue(self) -> None:
        """Save the latest copy, if the folder's state is older. Callable from any thread."""
        own = self._own
        if own.shards is not None:  # one worker does not have all shards
            return
        if not own.copies.lock.acquire(timeout=_RESCUE_S):  # the training thread is stuck in a copy or in a write
            return
        try:
            if self.folder is None or own.copies.last is None or own.copies.step == NO_STEP:
                return
            self._end_job(own.copies.step, _RESCUE_S)
            if (checkpoint_file.step_of(self.folder) or 0) < own.copies.step:
                with aside(own.copies.last):
                    checkpoint_file.save(self.folder, own.copies.last, own.copies.step, self.lineage)
                own.progress.report(StateOnDisk(own.copies.step))
                self.unreported = None  # an older save
        finally:
            own.copies.lock.release()

    def save(self, *, report_later: bool = False) -> None:
        """Save the state to its folder; the duration determines the time of the next save.

        With ``report_later``, saves are reported five times a second or less; :meth:`report` reports the rest.
        """
        own = self._own
        if self.folder is None:
            return
        if own.shards is not None:
            own.shards.save(self._state)
            return
        self._end_job(own.progress.step)
        begun = time.monotonic()
        with own.copies.lock:
            checkpoint_file.save(self.folder, capture(self._state), own.progress.step, self.lineage)
        self.report_saved(own.progress.step, begun, report_later=report_later)

    def report_saved(self, step: int, begun: float, *, report_later: bool = False) -> None:
        """Report that a state is on disk; the duration determines the time of the next save."""
        ended = time.monotonic()
        self.due_at = ended + (ended - begun) * (1 / _SAVING_SHARE - 1)
        self.unreported = StateOnDisk(step, round(ended - begun, 3))
        if not report_later or ended - self.reported_at > REPORTS_S:
            self.report()

    def _end_job(self, step: int, timeout_s: float | None = None) -> None:
        """Stop the background save; a save of ``step`` itself may finish."""
        if self.job.busy and self.job.step == step:
            self.job.wait(timeout_s)
        else:
            self.job.stop(timeout_s)

    def report(self) -> None:
        """Report the latest save, if it is unreported."""
        if self.unreported is not None:
            self.reported_at = time.monotonic()
            self._own.progress.report(self.unreported)
            self.unreported = None

    def save_if_due(self, *, recent: bool = False) -> None:
        """Save the state to its folder, unless that happened recently; training continues if it fails.

        A large state is saved by a thread, from a separate copy: training waits only for that copy, which a commit
        among several workers has made already. With ``recent``, a recent copy is written first, then the current state.
        """
        own = self._own
        if own.shards is not None:  # all workers save them
            return
        if own.group.commits == _DESCRIBED:
            self.describe(capture(self._state))
        try:
            self.job.raise_error()
            if not self.due:
                return
            self.soon = False
            if not self._begin_save(recent=recent):
                self.save(report_later=True)
        except (OSError, BadCommit) as error:
            self.warn_not_saved(own.progress.step, error)

    def send_if_due(self) -> None:
        """Send the latest in-memory copy to the copy server in the background, if one is due; saves stop it."""
        own, copy = self._own, self._own.copies.last
        if copy is None or own.copies.step in {NO_STEP, own.outside.step} or not sends_copy(self._state):
            return
        if copy.size <= AT_ONCE_BYTES or self._has_room(copy, current=True):
            own.outside.start(copy, own.copies.step, self.lineage)

    def warn_not_saved(self, step: int, error: Exception) -> None:
        """Report that a state could not be written, and retry soon."""
        self.due_at, self.soon = time.monotonic() + _AGAIN_S, False
        self._own.progress.report(StateNotOnDisk(step, str(error)[:REASON_LETTERS]))
        text = f"the state of step {step} is not on disk: {error}; it is tried again in {_AGAIN_S:g} s"
        warnings.warn(text, RuntimeWarning, stacklevel=4)

    def _begin_save(self, *, recent: bool) -> bool:
        """Start to save a state in a thread; return false if it is small, or memory is short."""
        own, tree = self._own, capture(self._state)
        if tree.size <= AT_ONCE_BYTES:
            return False
        sent = not own.keeps and own.outside.holds(own.copies.last)  # two threads can read the same copy
        if not sent:
            own.outside.abandon()  # the save may need its memory, and a slow link must not delay it
        recent = recent and own.copies.recent
        current = sent or recent or own.copies.step == own.progress.step
        if not self._has_room(tree, current=current):
            return False
        copy = own.copies.last
        if copy is None or not current:
            copy = keep(self._state)
        self.soon = recent and own.copies.step != own.progress.step
        self.job.start(partial(self._write_copy, copy, own.copies.step, self.lineage), copy, own.copies.step)
        return True

    def _has_room(self, tree: StateTree, *, current: bool) -> bool:
        """Return whether there is memory for the copies that are needed during a save."""
        own = self._own
        if not tree.on_cpu or (current and not own.keeps):
            return True  # commits do not change the copy being written
        rooms = own.copies.spares if current else [own.copies.last, *own.copies.spares]
        return any(one is not None and alike(one, tree) for one in rooms) or fits_in_memory(tree.size)

    def _write_copy(self, copy: StateTree, step: int, lineage: int) -> None:
        folder, begun = self.folder, time.monotonic()
        if folder is None:
            return
        with aside(copy):
            checkpoint_file.save(folder, copy, step, lineage, self.job.raise_if_stopped)
        self.report_saved(step, begun)

    def save_if_only_here(self) -> None:
        """Save the state if the group has one node and the folder has an older state: no other copy exists."""
        own = self._own
        if self.folder is None or own.group.place.size > 1 or own.group.place.rank:
            return
        try:
            before = checkpoint_file.step_of(self.folder) or 0
        except (OSError, BadCommit):
            before = 0  # saving will report the error
        self.soon = True
        recent = own.copies.recent
        if before < (own.copies.step if recent else own.progress.step):
            self.save_if_due(recent=recent)
            self.report()

    def load(self, place: CopyPlace | None = None) -> bool:
        """Read the state from the copy at ``place`` or its folder, whichever is newer; return whether there was one."""
        own = self._own
        commit = self._fetched(place) if place is not None else None
        if commit is None and self.folder is not None:
            commit = checkpoint_file.load(self.folder)
        if commit is None:
            return False
        restore(self._state, commit.tree, ours=True)
        if own.shards is not None and not own.shards.named:
            raise BadCommit("has no shards: a script without ShardedTraining wrote it", where=str(self.folder))
        self.lineage = commit.lineage + 1
        return True

    def _fetched(self, place: CopyPlace) -> SavedCommit | None:
        """Return the copy at a copy server, if it is newer than the folder."""
        try:
            present = (-1, -1) if self.folder is None else checkpoint_file.version_of(self.folder)
            return outside_copy.fetch(
                place, present, partial(self._own.progress.moved, self._own.group.place.generation)
            )
        except (OSError, BadMessage, BadCommit) as error:
            sys.stderr.write(f"bftrain: the copy of the state at {place.host} cannot be used: {error}\n")
            return None

    def tidy(self) -> None:
        """Stop saving and sending on other ranks than 0; rank 0 removes the unfinished files of killed workers."""
        own = self._own
        if own.group.place.rank:
            self.job.stop()
            own.outside.abandon()
        elif self.folder is not None:
            checkpoint_file.tidy(self.folder)


class StateProgress:
    """The steps and samples of the training, and the channel that reports them."""

    def __init__(self) -> None:
        self.step = 0  # completed steps
        self.samples = 0  # samples of all steps since ``samples_since``
        self.samples_since = 0
        self.counted = 0  # latest step that the script counted itself
        self.commit_step = 0  # step of the latest commit
        self.report: Callable[[WireMessage], None] = lambda _message: None
        self.reported_at = 0.0
        self._move_reported_at = time.monotonic()

    def moved(self, generation: int, count: int) -> None:
        """Report once a second how many bytes have moved: otherwise the manager takes the transfer for a stall."""
        if time.monotonic() - self._move_reported_at > _MOVE_REPORT_S:
            self._move_reported_at = time.monotonic()
            self.report(StateMoving(generation, count))


class StateInternals:
    """The internal parts of a :class:`bftrain_elastic.State`, alongside the script's values."""

    def __init__(self, state: StateBase) -> None:
        self.group = StateGroup()
        self.copies = StateCopies()
        self.saver = StateSaver(self, state)
        self.progress = StateProgress()
        self.outside = OutsideCopy()
        self.shards: Any = None  # ShardedCommits of the sharded part, if any

    @property
    def keeps(self) -> bool:
        """Whether commits keep copies, to return to after a death or an announced preemption."""
        return self.copies.alone or self.group.place.workers > 1

    def in_use(self, tree: object) -> bool:
        """Return whether a thread is saving or sending a tree."""
        return self.saver.job.holds(tree) or self.outside.holds(tree)


def inner(state: StateBase) -> StateInternals:
    """Return the internal parts of a state."""
    internals: StateInternals = state.__dict__[OWN]
    return internals


def has_state_dict(value: object) -> bool:
    """Return whether a value is read and restored in place by its own methods."""
    return hasattr(value, "state_dict")


def compared_values(state: StateBase) -> NamedValues:
    """Return the values that workers compare in each commit: plain values, and small tensors in them."""
    own = inner(state)
    compared = NamedValues()
    compared.add(STEP, own.progress.step)
    compared.add(LINEAGE, own.saver.lineage)
    compared.add(SAMPLES, [own.progress.samples, own.progress.samples_since])
    for name, value in sorted(vars(state).items()):
        if name != OWN and not has_state_dict(value):
            compared.add(name, value, _LARGEST_VALUE_BYTES)
    return compared


def capture(state: StateBase, compared: NamedValues | None = None) -> StateTree:
    """Return the current state, beginning with the compared values; its tensors are shared."""
    values = (compared or compared_values(state)).copy()
    done = {OWN, *values.names}
    own = inner(state)
    if own.shards is not None and own.shards.named:
        values.add(SHARDS, own.shards.named)
    models = {name: value for name, value in vars(state).items() if hasattr(value, "named_parameters")}
    values.add(FROZEN, {name: _frozen(model) for name, model in models.items()})
    for name, value in vars(state).items():
        if name not in done:
            values.add(name, value.state_dict() if has_state_dict(value) else value)
    return values.tree()


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
    """Return whether this worker is rank 0, a copy to its server is due, and the memory suffices for it."""
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
        own.copies.take(fresh, own.progress.step)
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


def empty_copy(own: StateInternals, tree: StateTree) -> StateTree:
    """Return contiguous memory for a copy of a tree; an older copy that lends its memory is incomplete from now on."""
    own.copies.step = NO_STEP
    room = own.copies.room(own.in_use)
    if room is not None and alike(room, tree) and all(one.is_contiguous() for one in room.tensors.values()):
        return StateTree(tree.plain, room.tensors)
    return StateTree(tree.plain, {name: torch.empty(one.shape, dtype=one.dtype) for name, one in tree.tensors.items()})
