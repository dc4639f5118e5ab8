"""What a state holds, and what is known of it: its values as a tree, and back again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.wire.messages import Message
from bftrain_elastic.worker.large_values import LargeValues
from bftrain_elastic.worker.process_groups import ProcessGroup
from bftrain_elastic.worker.state_tree import NamedValues, StateTree, copied, put_back

_LARGEST_VALUE_BYTES: Final = 65536  # of a tensor that is looked at in each commit
NO_STEP: Final = -1
OWN: Final = "_bftrain"  # the attribute of a state in which its Inner stands
STEP: Final = "bftrain.step"
LINEAGE: Final = "bftrain.lineage"
SAMPLES: Final = "bftrain.samples"


class StateInternals:
    """What a :class:`bftrain_elastic.State` knows beside what the script put into it."""

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
        self.copy: StateTree | None = None  # of the last commit
        self.copy_step = NO_STEP
        self.keeps_alone = False  # copies are kept even where there is no other worker
        self.save_at = 0.0
        self.lock = threading.RLock()  # of the copy, and of writing: another thread may have to rescue them
        self.disk_reported_at = 0.0
        self.disk_unreported: Message | None = None  # the last write, until it is reported
        self.parallel: Any = None
        self.asked: Callable[[], int] = lambda: 0  # the largest generation that we are asked to gather for
        self.tell: Callable[[Message], None] = lambda _message: None
        self.reported_at = 0.0
        self.place = "script"  # what the worker is doing, in a word
        self.commits = 0  # how often commit() was entered in this group
        self.committed_at = 0.0
        self.pace_s = 0.0  # how long it may be from one commit to the next


class StateBase:
    """The part of a :class:`bftrain_elastic.State` that saving and agreeing need: its attributes by name."""


def inner(state: StateBase) -> StateInternals:
    """Give what the state knows for itself."""
    found: StateInternals = state.__dict__[OWN]
    return found


def has_state_dict(value: object) -> bool:
    """Return whether a value keeps its identity and is read and restored by its own methods."""
    return hasattr(value, "state_dict")


def compared_values(state: StateBase) -> NamedValues:
    """Return what is compared between workers in each commit: plain values, with tensors in them if these are small."""
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
    """Give the state as it is now, beginning with the values that are compared; its tensors are the state's own."""
    found = (compared or compared_values(state)).copy()
    there = {OWN, *found.names}
    for name, value in vars(state).items():
        if name not in there:
            found.add(name, value.state_dict() if has_state_dict(value) else value)
    return found.tree()


def restore(state: StateBase, tree: StateTree, *, ours: bool = False) -> None:
    """Make the state what ``tree`` says; if that is ``ours``, its tensors may become the state's own."""
    values = (put_back(tree, capture(state)) or (tree if ours else copied(tree, None))).unfolded()
    own = inner(state)
    own.step = own.commit_step = int(values.pop(STEP))
    own.lineage = int(values.pop(LINEAGE, 0))
    own.samples, own.samples_since = values.pop(SAMPLES, (0, own.step))
    for name, value in values.items():
        present: Any = vars(state).get(name)
        if hasattr(present, "load_state_dict"):
            present.load_state_dict(value)
            if hasattr(present, "zero_grad"):  # what a broken step left behind
                present.zero_grad()
        else:
            setattr(state, name, value)


def keep(state: StateBase, compared: NamedValues | None = None) -> None:
    """Copy the state as what to return to."""
    own = inner(state)
    with own.lock:
        own.copy_step = NO_STEP  # while the copy is neither the old one nor the new one
        own.copy = copied(capture(state, compared), own.copy)
        own.copy_step = own.step
