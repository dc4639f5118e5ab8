"""Saving a state to its folder and loading it: immediately, or from a copy in a background thread."""

from __future__ import annotations

import sys
import time
import warnings
from functools import partial
from typing import Final

from bftrain_elastic.errors import BadCommit, BadMessage
from bftrain_elastic.wire.worker_messages import CopyPlace, StateMoving, StateNotOnDisk, StateOnDisk
from bftrain_elastic.worker import checkpoint_file, outside_copy
from bftrain_elastic.worker.checkpoint_file import AT_ONCE_BYTES, SavedCommit, fits_in_memory
from bftrain_elastic.worker.process_groups import aside
from bftrain_elastic.worker.state_tree import StateTree, alike
from bftrain_elastic.worker.state_values import (
    NO_STEP,
    REPORTS_S,
    SPARES,
    StateBase,
    StateInternals,
    capture,
    inner,
    keep,
    restore,
    sends_copy,
)

_SAVING_SHARE: Final = 0.05  # maximum share of run time for writing commits
_DESCRIBED: Final = 2  # commit of a group at which the state is complete; an optimizer makes some parts in a step
REASON_LETTERS: Final = 300
_RESCUE_S: Final = 60.0  # time that another thread waits for the training thread to copy or write
_LOADING_REPORT_S: Final = 1.0
_AGAIN_S: Final = 5.0  # delay before a failed write of a commit is retried


def rescue(state: StateBase) -> None:
    """Save the copy of the last commit to the folder, unless the folder has a newer one. Callable from any thread."""
    own = inner(state)
    if own.shards is not None:  # one worker does not have all shards
        return
    if not own.copies.lock.acquire(timeout=_RESCUE_S):  # the training thread is stuck in a copy or in a write
        return
    try:
        if own.saver.folder is None or own.copies.last is None or own.copies.step == NO_STEP:
            return
        end_background_save(own, own.copies.step, _RESCUE_S)
        if (checkpoint_file.step_of(own.saver.folder) or 0) < own.copies.step:
            with aside(own.copies.last):
                checkpoint_file.save(own.saver.folder, own.copies.last, own.copies.step, own.saver.lineage)
            own.progress.report(StateOnDisk(own.copies.step))
            own.saver.unreported = None  # an older save
    finally:
        own.copies.lock.release()


def save(state: StateBase, *, report_later: bool = False) -> None:
    """Save the state to its folder; the duration determines the time of the next save.

    With ``report_later``, saves are reported five times a second or less; :func:`report_on_disk` reports the rest.
    """
    own = inner(state)
    if own.saver.folder is None:
        return
    if own.shards is not None:
        own.shards.save(state)
        return
    end_background_save(own, own.progress.step)
    begun = time.monotonic()
    with own.copies.lock:
        checkpoint_file.save(own.saver.folder, capture(state), own.progress.step, own.saver.lineage)
    report_saved(own, own.progress.step, begun, report_later=report_later)


def report_saved(own: StateInternals, step: int, begun: float, *, report_later: bool = False) -> None:
    """Report that a state is on disk; the duration determines the time of the next save."""
    ended = time.monotonic()
    own.saver.due_at = ended + (ended - begun) * (1 / _SAVING_SHARE - 1)
    own.saver.unreported = StateOnDisk(step, round(ended - begun, 3))
    if not report_later or ended - own.saver.reported_at > REPORTS_S:
        report_on_disk(own)


def end_background_save(own: StateInternals, step: int, timeout_s: float | None = None) -> None:
    """Stop the background save; a save of ``step`` itself may finish."""
    if own.saver.job.busy and own.saver.job.step == step:
        own.saver.job.wait(timeout_s)
    else:
        own.saver.job.stop(timeout_s)


def report_on_disk(own: StateInternals) -> None:
    """Report the latest save, if it is unreported."""
    if own.saver.unreported is not None:
        own.saver.reported_at = time.monotonic()
        own.progress.report(own.saver.unreported)
        own.saver.unreported = None


def save_if_due(state: StateBase, *, recent: bool = False) -> None:
    """Save the state to its folder, unless that happened recently; training continues if it fails.

    A large state is saved by a thread, from a separate copy: training waits only for that copy, which a commit among
    several workers has made already. With ``recent``, a recent copy is written first, and the current state next.
    """
    own = inner(state)
    if own.shards is not None:  # all workers save them
        return
    if own.group.commits == _DESCRIBED:
        own.saver.describe(capture(state))
    try:
        own.saver.job.raise_error()
        if not own.saver.due:
            return
        own.saver.soon = False
        if not _begin_save(own, state, recent=recent):
            save(state, report_later=True)
    except (OSError, BadCommit) as error:
        warn_not_saved(own, own.progress.step, error)


def send_if_due(state: StateBase) -> None:
    """Send the latest in-memory copy to the copy server in the background, if one is due; saves stop it."""
    own = inner(state)
    copy = own.copies.last
    if copy is None or own.copies.step in {NO_STEP, own.outside.step} or not sends_copy(state):
        return
    if copy.size > AT_ONCE_BYTES and not _has_room(own, copy, current=True):
        if not own.copies.no_room and fits_in_memory(copy.size):
            own.saver.job.start(partial(_make_room, own, copy, 1))
        return
    own.outside.start(copy, own.copies.step, own.saver.lineage)


def warn_not_saved(own: StateInternals, step: int, error: Exception) -> None:
    """Report that a state could not be written, and retry soon."""
    own.saver.due_at, own.saver.soon = time.monotonic() + _AGAIN_S, False
    own.progress.report(StateNotOnDisk(step, str(error)[:REASON_LETTERS]))
    words = f"the state of step {step} is not on disk: {error}; it is tried again in {_AGAIN_S:g} s"
    warnings.warn(words, RuntimeWarning, stacklevel=4)


def _begin_save(own: StateInternals, state: StateBase, *, recent: bool) -> bool:
    """Start to save a large state in a thread, or to allocate the copy for it; return whether it was started."""
    tree = capture(state)
    size = tree.size
    if size <= AT_ONCE_BYTES:
        return False
    sent = not own.keeps and own.outside.holds(own.copies.last)  # two threads can read the same copy
    if not sent:
        own.outside.abandon()  # the save may need its memory, and a slow link must not delay it
    recent = recent and own.copies.recent
    current = sent or recent or own.copies.step == own.progress.step
    if not _has_room(own, tree, current=current):
        missing = (
            SPARES + 1 - sum(one is not None and alike(one, tree) for one in (own.copies.last, *own.copies.spares))
        )
        count = next((many for many in range(missing, 0, -1) if fits_in_memory(many * size)), 0)
        if own.copies.no_room or not count:
            return False
        own.saver.soon = True
        own.saver.job.start(partial(_make_room, own, tree, count))
        return True
    copy = own.copies.last
    if copy is None or not current:
        copy = keep(state)
    own.saver.soon = recent and own.copies.step != own.progress.step
    own.saver.job.start(partial(_write_copy, own, copy, own.copies.step, own.saver.lineage), copy, own.copies.step)
    return True


def _has_room(own: StateInternals, tree: StateTree, *, current: bool) -> bool:
    """Return whether there is memory for the copies that are needed during a save."""
    if not tree.on_cpu or (current and not own.keeps):
        return True  # commits do not change the copy being written
    rooms = own.copies.spares if current else [own.copies.last, *own.copies.spares]
    return any(one is not None and alike(one, tree) for one in rooms)


def _make_room(own: StateInternals, tree: StateTree, count: int) -> None:
    """Allocate memory for a copy: the kernel takes longer for it than copying does."""
    try:
        for _ in range(count):
            own.copies.spares.append(tree.room())
    except (RuntimeError, MemoryError):  # torch raises RuntimeError
        own.copies.no_room = True


def _write_copy(own: StateInternals, copy: StateTree, step: int, lineage: int) -> None:
    folder, begun = own.saver.folder, time.monotonic()
    if folder is None:
        return
    with aside(copy):
        checkpoint_file.save(folder, copy, step, lineage, own.saver.job.go_on)
    report_saved(own, step, begun)


def save_if_only_here(state: StateBase) -> None:
    """Save the state if the group has one node and the folder has an older state: no other copy exists."""
    own = inner(state)
    if own.saver.folder is None or own.group.place.size > 1 or own.group.place.rank:
        return
    try:
        before = checkpoint_file.step_of(own.saver.folder) or 0
    except (OSError, BadCommit):
        before = 0  # saving will report the error
    own.saver.soon = True
    recent = own.copies.recent
    if before < (own.copies.step if recent else own.progress.step):
        save_if_due(state, recent=recent)
        report_on_disk(own)


def load(state: StateBase, place: CopyPlace | None = None) -> bool:
    """Read the state from the copy at ``place`` or its folder, whichever is newer; return whether there was one."""
    own = inner(state)
    found = _fetched(own, place) if place is not None else None
    if found is None and own.saver.folder is not None:
        found = checkpoint_file.load(own.saver.folder)
    if found is None:
        return False
    restore(state, found.tree, ours=True)
    if own.shards is not None and not own.shards.named:
        raise BadCommit("has no shards: a script without ShardedTraining wrote it", where=str(own.saver.folder))
    own.saver.lineage = found.lineage + 1
    return True


def _fetched(own: StateInternals, place: CopyPlace) -> SavedCommit | None:
    """Return the copy at a copy server, if it is newer than the folder."""
    reported_at = time.monotonic()

    def moved(count: int) -> None:  # reports, lest the manager take a large state for a stall
        nonlocal reported_at
        if time.monotonic() - reported_at > _LOADING_REPORT_S:
            reported_at = time.monotonic()
            own.progress.report(StateMoving(own.group.place.generation, count))

    try:
        present = (-1, -1) if own.saver.folder is None else checkpoint_file.version_of(own.saver.folder)
        return outside_copy.fetch(place, present, moved)
    except (OSError, BadMessage, BadCommit) as error:
        sys.stderr.write(f"bftrain: the copy of the state at {place.host} cannot be used: {error}\n")
        return None


def tidy(state: StateBase) -> None:
    """Leave saving to rank 0, which removes unfinished files of killed workers from the folder."""
    own = inner(state)
    if own.group.place.rank:
        own.saver.job.stop()
        own.outside.abandon()
    elif own.saver.folder is not None:
        checkpoint_file.tidy(own.saver.folder)
