"""State: all of a training that has to survive when its workers change."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bftrain_elastic import commits, drift
from bftrain_elastic.errors import BadCommit, BadScript
from bftrain_elastic.groups import Group, aside, own_gpu
from bftrain_elastic.large_values import LargeValues, taken
from bftrain_elastic.messages import Message
from bftrain_elastic.trees import NamedValues, Tree, copied, put_back

_SAVING_SHARE: Final = 0.05  # of the time may go into writing commits
NOT_SAVED: Final = os.EX_IOERR  # how a worker ends that could not write the state before it left
_LEAVING_AGAIN_S: Final = 0.5  # after which a worker that leaves tries again to write
_REASON_LETTERS: Final = 300
_RESCUE_S: Final = 60.0  # how long another thread waits for the training's own one to copy or write
_AGAIN_S: Final = 5.0  # after which a commit that could not be written is tried again
_TELLING_S: Final = 0.2  # between two remarks that the state is in memory: at most five a second
_LARGEST_VALUE_BYTES: Final = 65536  # of a tensor that is looked at in each commit
NO_STEP: Final = -1
_OURS: Final = "_bftrain"
_STEP: Final = "bftrain.step"
_LINEAGE: Final = "bftrain.lineage"
_SAMPLES: Final = "bftrain.samples"


class Regroup(BaseException):
    """Leaves the script's ``train`` at a commit; no error, and nothing that ``except Exception`` should catch."""


class Inner:
    """What a :class:`State` knows beside what the script put into it."""

    def __init__(self) -> None:
        self.group = Group()
        self.folder: Path | None = None
        self.step = 0
        self.samples = 0  # of all steps since the one ``samples_since``
        self.samples_since = 0
        self.counted = 0  # the last step that the script counted itself
        self.commit_step = 0  # the step of the last commit
        self.lineage = 0  # how often somebody went on from the folder
        self.large = LargeValues()
        self.copy: Tree | None = None  # of the last commit
        self.copy_step = NO_STEP
        self.keeps_alone = False  # copies are kept even where there is no other worker
        self.save_at = 0.0
        self.lock = threading.RLock()  # of the copy, and of writing: another thread may have to rescue them
        self.disk_told_at = 0.0
        self.disk_untold: Message | None = None  # the last write, as long as it is not told
        self.parallel: Any = None
        self.asked: Callable[[], int] = lambda: 0  # the largest generation that anybody wants us to gather for
        self.tell: Callable[[Message], None] = lambda _message: None
        self.told_at = 0.0
        self.place = "script"  # what the worker is doing, in a word
        self.commits = 0  # how often commit() was entered in this group
        self.committed_at = 0.0
        self.pace_s = 0.0  # how long it may be from one commit to the next


class State:
    """Model, optimizer, and whatever else has to survive: ``State(model=..., optimizer=..., position=0, best=1e9)``.

    Everything given is an attribute. Objects with ``state_dict`` and ``load_state_dict`` keep their identity; other
    values (numbers, strings, lists, dicts, tensors) are replaced when the state is restored.

    The values of rank 0 count: at each commit all workers get them if theirs differ. So a best loss or a count that
    only rank 0 keeps is not lost when its node leaves. What other ranks alone know has to be merged by the script with
    ``torch.distributed`` before it commits, and values meant to differ between workers do not belong into the state.
    Models, optimizers and other objects with a ``state_dict`` are not compared: every worker must change these alike.
    Of values that contain a tensor of more than 64 KiB or on a GPU those of rank 0 are sent when not all workers have
    changed the same of them since the last commit, and before each planned change of the group.
    """

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 - whatever the script wants to keep
        self.__dict__[_OURS] = Inner()
        for name, value in values.items():
            if hasattr(type(self), name) or name.startswith("_"):
                raise BadScript(f"the name '{name}' is taken", where="State", fix="call it otherwise")
            setattr(self, name, value)

    # -- for the script

    @property
    def rank(self) -> int:
        """Which worker of the group this is, from 0."""
        return inner(self).group.place.rank

    @property
    def workers(self) -> int:
        """How many workers the group has."""
        return inner(self).group.place.workers

    @property
    def step(self) -> int:
        """How many steps were done, all workers' together as one: as often as it was reported or committed."""
        return inner(self).step

    @property
    def device(self) -> Any:  # noqa: ANN401 - torch.device
        """Where tensors belong: the worker's GPU, or the CPU. Under torchrun's rules it is one of several."""
        import torch

        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", own_gpu())

    def parallel(self, **options: Any) -> Any:  # noqa: ANN401 - a torch module
        """Give the model as the present group trains it: wrapped in DistributedDataParallel, or itself when alone."""
        own = inner(self)
        if self.workers == 1:
            return self.model
        if own.parallel is None:
            from torch.nn.parallel import DistributedDataParallel

            # All hold the same state already
            own.parallel = DistributedDataParallel(self.model, **{"init_sync": False, **options})
        return own.parallel

    def commit(self) -> None:
        """Say that here it is safe to stop, and that this is what to return to if a worker dies.

        All workers must call it. When it returns all of them have a copy in memory; one of them writes it to the
        task's folder if that was not done lately.
        """
        own = inner(self)
        own.place = "commit"
        own.commits += 1
        keep_pace(own)
        if own.step == own.commit_step:  # a script that does not report still gets further
            own.step += 1
        own.commit_step = own.step
        largest = _commit_together(self) if own.group.place.workers > 1 else _commit_alone(self)
        if own.group.place.rank == 0:
            save_if_due(self)
            if own.disk_untold is not None and time.monotonic() - own.disk_told_at > _TELLING_S:
                tell_on_disk(own)
        if largest > own.group.place.generation:
            raise Regroup
        own.place = "script"

    if TYPE_CHECKING:  # whatever it was given is an attribute, and may be set

        def __setattr__(self, name: str, value: Any) -> None: ...  # noqa: ANN401 - a state holds anything

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - called only for what is not there
        raise AttributeError(f"the state holds no '{name}': give it to State({name}=...)")


def inner(state: State) -> Inner:
    """Give what the state knows for itself."""
    found: Inner = state.__dict__[_OURS]
    return found


def _is_object(value: object) -> bool:
    return hasattr(value, "state_dict")


def compared_values(state: State) -> NamedValues:
    """Return what is compared between workers in each commit: plain values, with tensors in them if these are small."""
    own = inner(state)
    found = NamedValues()
    found.add(_STEP, own.step)
    found.add(_LINEAGE, own.lineage)
    found.add(_SAMPLES, [own.samples, own.samples_since])
    held = vars(state)
    for name in sorted(held):
        if name != _OURS and not _is_object(held[name]):
            found.add_small(name, held[name], _LARGEST_VALUE_BYTES)
    return found


def capture(state: State, compared: NamedValues | None = None) -> Tree:
    """Give the state as it is now, beginning with the values that are compared; its tensors are the state's own."""
    found = (compared or compared_values(state)).copy()
    there = {_OURS, *found.names}
    for name, value in vars(state).items():
        if name not in there:
            found.add(name, value.state_dict() if _is_object(value) else value)
    return found.tree()


def restore(state: State, tree: Tree, *, ours: bool = False) -> None:
    """Make the state what ``tree`` says; if that is ``ours``, its tensors may become the state's own."""
    values = (put_back(tree, capture(state)) or (tree if ours else copied(tree, None))).unfolded()
    own = inner(state)
    own.step = own.commit_step = int(values.pop(_STEP))
    own.lineage = int(values.pop(_LINEAGE, 0))
    own.samples, own.samples_since = values.pop(_SAMPLES, (0, own.step))
    for name, value in values.items():
        present: Any = vars(state).get(name)
        if hasattr(present, "load_state_dict"):
            present.load_state_dict(value)
            if hasattr(present, "zero_grad"):  # what a broken step left behind
                present.zero_grad()
        else:
            setattr(state, name, value)


def _commit_alone(state: State) -> int:
    """Copy the state if an error may have to return to it; return the generation that this worker is asked for."""
    own = inner(state)
    if own.keeps_alone:
        keep(state)
    return own.asked()


def _commit_together(state: State) -> int:
    """Copy the state on all members, with the values of rank 0; return the largest generation that one is asked for."""
    own = inner(state)
    compared = compared_values(state)
    digest, tells = compared.digest(), wants_to_tell(own)
    numbers = [own.asked(), digest, -digest, tells, *look_at_large_values(state, compared)]
    largest, highest, lowest, tells, *large = own.group.largest_each(numbers)
    if large_values_due(large, leaves=largest > own.group.place.generation):
        _take_large_values_of_first(state, everything=largest > own.group.place.generation)
        compared = compared_values(state)
    if highest != -lowest:
        take_values_of_first(state, compared)
        compared = compared_values(state)
    keep(state, compared)
    if tells:
        own.group.largest(0)  # all have their copy
        if own.group.place.rank == 0:
            tell_in_memory(own)
    if drift.is_due(own.commits):
        _tell_drift(state)
    return largest


def look_at_large_values(state: State, compared: NamedValues) -> list[int]:
    """Look which large values were changed; return numbers of which all members need the largest of each."""
    own = inner(state)
    held = vars(state)
    own.large.look({name: held[name] for name in _large_names(state, compared)})
    digest = own.large.digest
    return [digest, -digest, int(own.large.there and own.group.place.rank == 0)]


def _large_names(state: State, compared: NamedValues) -> list[str]:
    there = {_OURS, *compared.names}
    return [name for name, value in vars(state).items() if name not in there and not _is_object(value)]


def large_values_due(numbers: Sequence[int], *, leaves: bool) -> bool:
    """Return whether rank 0 has to send its large values: others have not changed the same, or the group dissolves."""
    highest, lowest, there = numbers
    return bool(there) and (leaves or highest != -lowest)


def _take_large_values_of_first(state: State, *, everything: bool) -> None:
    """Give all members the large values of rank 0; of all members."""
    own = inner(state)
    first = own.group.place.rank == 0
    tree = own.group.shared(own.large.to_send(everything=everything) if first else None)
    if first:
        return
    for name, value in taken(tree, vars(state)).items():
        setattr(state, name, value)
    look_at_large_values(state, compared_values(state))


def take_values_of_first(state: State, compared: NamedValues) -> None:
    """Give all members the values of rank 0; of all members."""
    own = inner(state)
    tree = own.group.shared(compared.tree() if own.group.place.rank == 0 else None)
    if own.group.place.rank == 0:
        return
    before = dict(json.loads(text) for text in compared.texts)
    after = dict(json.loads(tree.plain)[1])
    values = tree.unfolded()
    own.step = own.commit_step = int(values.pop(_STEP))
    own.lineage = int(values.pop(_LINEAGE))
    own.samples, own.samples_since = values.pop(_SAMPLES)
    for name, value in values.items():
        if after[name] != before.get(name) or tree.tensors:  # what is the same already may be in use
            setattr(state, name, value)


def _tell_drift(state: State) -> None:
    """Tell if the replicas of the models are not the same on all members; of all members."""
    own = inner(state)
    models = [value for name, value in vars(state).items() if name != _OURS and hasattr(value, "parameters")]
    relative = drift.relative(own.group.spread(drift.summary(models)))
    if relative > drift.TOLERATED and own.group.place.rank == 0:
        own.tell({"say": "drift", "step": own.step, "relative": relative})


def keep(state: State, compared: NamedValues | None = None) -> None:
    """Copy the state as what to return to."""
    own = inner(state)
    with own.lock:
        own.copy_step = NO_STEP  # while the copy is neither the old one nor the new one
        own.copy = copied(capture(state, compared), own.copy)
        own.copy_step = own.step


def rescue(state: State) -> None:
    """Write the copy of the last commit to the folder, unless a newer one is there. From any thread."""
    own = inner(state)
    if not own.lock.acquire(timeout=_RESCUE_S):  # the training's own thread is stuck in a copy or in a write
        return
    try:
        if own.folder is None or own.copy is None or own.copy_step == NO_STEP:
            return
        if (commits.step_of(own.folder) or 0) < own.copy_step:
            with aside(own.copy):
                commits.save(own.folder, own.copy, own.copy_step, own.lineage)
            own.tell({"say": "on_disk", "step": own.copy_step})
    finally:
        own.lock.release()


def save(state: State, *, tell_later: bool = False) -> None:
    """Write the state to its folder; how long that takes decides how soon it may be done again.

    With ``tell_later`` it is told at most five times a second; :func:`tell_on_disk` tells the last one.
    """
    own = inner(state)
    if own.folder is None:
        return
    begun = time.monotonic()
    with own.lock:
        commits.save(own.folder, capture(state), own.step, own.lineage)
    ended = time.monotonic()
    own.save_at = ended + (ended - begun) * (1 / _SAVING_SHARE - 1)
    own.disk_untold = {"say": "on_disk", "step": own.step, "took_s": round(ended - begun, 3)}
    if not tell_later or ended - own.disk_told_at > _TELLING_S:
        tell_on_disk(own)


def tell_on_disk(own: Inner) -> None:
    """Tell the last write, if it was not told yet."""
    if own.disk_untold is not None:
        own.disk_told_at = time.monotonic()
        own.tell(own.disk_untold)
        own.disk_untold = None


def save_if_due(state: State) -> None:
    """Write the state to its folder, unless that was done lately; if it cannot be written the training goes on."""
    own = inner(state)
    if own.folder is None or time.monotonic() < own.save_at:
        return
    try:
        save(state, tell_later=True)
    except (OSError, BadCommit) as error:
        own.save_at = time.monotonic() + _AGAIN_S
        own.tell({"say": "not_on_disk", "step": own.step, "reason": str(error)[:_REASON_LETTERS]})
        words = f"the state of step {own.step} is not on disk: {error}; it is tried again in {_AGAIN_S:g} s"
        warnings.warn(words, RuntimeWarning, stacklevel=3)


def save_or_end(own: Inner, write: Callable[[], None], grace_s: float) -> None:
    """Write the state by ``write`` before this worker ends, and try again until ``grace_s`` seconds are over.

    If it cannot be written the worker ends with a code of its own, so that nobody takes it for saved.
    """
    deadline = time.monotonic() + grace_s
    while True:
        try:
            return write()
        except (OSError, BadCommit) as error:
            own.tell({"say": "not_on_disk", "step": own.step, "reason": str(error)[:_REASON_LETTERS]})
            if time.monotonic() + _LEAVING_AGAIN_S > deadline:
                sys.stderr.write(f"bftrain: the state of step {own.step} is not on disk: {error}\n")
                raise SystemExit(NOT_SAVED) from error
        time.sleep(_LEAVING_AGAIN_S)


def save_if_only_here(state: State) -> None:
    """Write the state if the group has one node and the folder holds an older one: other nodes' copies are gone."""
    own = inner(state)
    if own.folder is None or own.group.place.size > 1 or own.group.place.rank:
        return
    try:
        newer = own.step > (commits.step_of(own.folder) or 0)
    except (OSError, BadCommit):
        newer = True  # saving will say what is wrong
    own.save_at = 0.0
    if newer:
        save_if_due(state)
        tell_on_disk(own)


def load(state: State) -> bool:
    """Read the state from its folder; tell whether there was one."""
    own = inner(state)
    found = commits.load(own.folder) if own.folder is not None else None
    if found is None:
        return False
    restore(state, found.tree, ours=True)
    own.lineage = found.lineage + 1
    return True


def tidy(state: State) -> None:
    """Remove what others were writing to the folder when they were killed; they must be gone."""
    folder = inner(state).folder
    if folder is not None:
        commits.tidy(folder)


def leave_group(state: State, *, broken: bool = False) -> None:
    """Leave the group, and forget the model that was wrapped for it."""
    own = inner(state)
    if own.parallel is not None:
        own.parallel._remove_autograd_hooks()  # noqa: SLF001 - or they would wait for the members of a group that is gone
        own.parallel = None
    own.group.leave(broken=broken)


def keep_pace(own: Inner) -> None:
    """Know how long it takes from commit to commit; what took long once is soon forgotten."""
    now = time.monotonic()
    if own.committed_at:
        own.pace_s = max(now - own.committed_at, own.pace_s / 2)
    own.committed_at = now


def wants_to_tell(own: Inner) -> int:
    """Return 1 on rank 0 if it will tell that this commit is in memory; otherwise 0."""
    place = own.group.place
    return int(place.rank == 0 and place.size > 1 and time.monotonic() - own.told_at > _TELLING_S)


def tell_in_memory(own: Inner) -> None:
    """Tell how far the training is safe against the loss of some nodes: all members hold a copy of the last commit."""
    own.told_at = time.monotonic()
    own.tell({"say": "in_memory", "step": own.commit_step})
