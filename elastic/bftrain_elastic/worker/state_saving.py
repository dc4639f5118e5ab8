"""Write a state to its folder and read it back: when, how often, and what is reported of that."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from bftrain_elastic.errors import BadCommit
from bftrain_elastic.worker import checkpoint_file
from bftrain_elastic.worker.process_groups import aside
from bftrain_elastic.worker.state_values import NO_STEP, StateInternals, capture, inner, restore

if TYPE_CHECKING:
    from bftrain_elastic.worker.state_values import StateBase

_SAVING_SHARE: Final = 0.05  # of the time may go into writing commits
NOT_SAVED: Final = os.EX_IOERR  # how a worker ends that could not write the state before it left
TELLING_S: Final = 0.2  # between two remarks on where the state is: at most five a second
_LEAVING_AGAIN_S: Final = 0.5  # after which a worker that leaves tries again to write
_REASON_LETTERS: Final = 300
_RESCUE_S: Final = 60.0  # how long another thread waits for the training's own one to copy or write
_AGAIN_S: Final = 5.0  # after which a commit that could not be written is tried again


def rescue(state: StateBase) -> None:
    """Write the copy of the last commit to the folder, unless a newer one is there. From any thread."""
    own = inner(state)
    if not own.lock.acquire(timeout=_RESCUE_S):  # the training's own thread is stuck in a copy or in a write
        return
    try:
        if own.folder is None or own.copy is None or own.copy_step == NO_STEP:
            return
        if (checkpoint_file.step_of(own.folder) or 0) < own.copy_step:
            with aside(own.copy):
                checkpoint_file.save(own.folder, own.copy, own.copy_step, own.lineage)
            own.tell({"type": "on_disk", "step": own.copy_step})
    finally:
        own.lock.release()


def save(state: StateBase, *, tell_later: bool = False) -> None:
    """Write the state to its folder; how long that takes decides how soon it may be done again.

    With ``tell_later`` it is reported at most five times a second; :func:`tell_on_disk` reports the last one.
    """
    own = inner(state)
    if own.folder is None:
        return
    begun = time.monotonic()
    with own.lock:
        checkpoint_file.save(own.folder, capture(state), own.step, own.lineage)
    ended = time.monotonic()
    own.save_at = ended + (ended - begun) * (1 / _SAVING_SHARE - 1)
    own.disk_unreported = {"type": "on_disk", "step": own.step, "took_s": round(ended - begun, 3)}
    if not tell_later or ended - own.disk_reported_at > TELLING_S:
        tell_on_disk(own)


def tell_on_disk(own: StateInternals) -> None:
    """Report the last write, if it was not reported yet."""
    if own.disk_unreported is not None:
        own.disk_reported_at = time.monotonic()
        own.tell(own.disk_unreported)
        own.disk_unreported = None


def tell_on_disk_if_due(own: StateInternals) -> None:
    """Report the last write, if it was not reported yet, at most five times a second."""
    if time.monotonic() - own.disk_reported_at > TELLING_S:
        tell_on_disk(own)


def save_if_due(state: StateBase) -> None:
    """Write the state to its folder, unless that was done lately; if it cannot be written the training goes on."""
    own = inner(state)
    if own.folder is None or time.monotonic() < own.save_at:
        return
    try:
        save(state, tell_later=True)
    except (OSError, BadCommit) as error:
        own.save_at = time.monotonic() + _AGAIN_S
        own.tell({"type": "not_on_disk", "step": own.step, "reason": str(error)[:_REASON_LETTERS]})
        words = f"the state of step {own.step} is not on disk: {error}; it is tried again in {_AGAIN_S:g} s"
        warnings.warn(words, RuntimeWarning, stacklevel=3)


def save_or_end(own: StateInternals, write: Callable[[], None], grace_s: float) -> None:
    """Write the state by ``write`` before this worker ends, and try again until ``grace_s`` seconds are over.

    If it cannot be written the worker ends with a code of its own, so that it is not taken for saved.
    """
    deadline = time.monotonic() + grace_s
    while True:
        try:
            return write()
        except (OSError, BadCommit) as error:
            own.tell({"type": "not_on_disk", "step": own.step, "reason": str(error)[:_REASON_LETTERS]})
            if time.monotonic() + _LEAVING_AGAIN_S > deadline:
                sys.stderr.write(f"bftrain: the state of step {own.step} is not on disk: {error}\n")
                raise SystemExit(NOT_SAVED) from error
        time.sleep(_LEAVING_AGAIN_S)


def save_if_only_here(state: StateBase) -> None:
    """Write the state if the group has one node and the folder holds an older one: other nodes' copies are gone."""
    own = inner(state)
    if own.folder is None or own.group.place.size > 1 or own.group.place.rank:
        return
    try:
        newer = own.step > (checkpoint_file.step_of(own.folder) or 0)
    except (OSError, BadCommit):
        newer = True  # saving will say what is wrong
    own.save_at = 0.0
    if newer:
        save_if_due(state)
        tell_on_disk(own)


def load(state: StateBase) -> bool:
    """Read the state from its folder; tell whether there was one."""
    own = inner(state)
    found = checkpoint_file.load(own.folder) if own.folder is not None else None
    if found is None:
        return False
    restore(state, found.tree, ours=True)
    own.lineage = found.lineage + 1
    return True


def tidy(state: StateBase) -> None:
    """Remove what others were writing to the folder when they were killed; they must be gone."""
    folder = inner(state).folder
    if folder is not None:
        checkpoint_file.tidy(folder)
