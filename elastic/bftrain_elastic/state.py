"""State: all of a training that has to survive when its workers change."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bftrain_elastic import commits
from bftrain_elastic.errors import BadScript
from bftrain_elastic.groups import Group, aside, own_gpu
from bftrain_elastic.trees import Tree, copied, fold, put_back

_SAVING_SHARE: Final = 0.05  # of the time may go into writing commits
NO_STEP: Final = -1
_OURS: Final = "_bftrain"
_STEP: Final = "bftrain.step"
_LINEAGE: Final = "bftrain.lineage"


class Regroup(BaseException):
    """Leaves the script's ``train`` at a commit; no error, and nothing that ``except Exception`` should catch."""


class Inner:
    """What a :class:`State` knows beside what the script put into it."""

    def __init__(self) -> None:
        self.group = Group()
        self.folder: Path | None = None
        self.step = 0
        self.commit_step = 0  # the step of the last commit
        self.lineage = 0  # how often somebody went on from the folder
        self.copy: Tree | None = None  # of the last commit
        self.copy_step = NO_STEP
        self.save_at = 0.0
        self.parallel: Any = None
        self.asked: Callable[[], int] = lambda: 0  # the largest generation that anybody wants us to gather for
        self.tell: Callable[[str, int], None] = lambda _what, _step: None
        self.told_at = 0.0
        self.committed_at = 0.0
        self.pace_s = 0.0  # how long it may be from one commit to the next


class State:
    """Model, optimizer, and whatever else has to survive: ``State(model=..., optimizer=..., position=0, best=1e9)``.

    Everything given is an attribute. Objects with ``state_dict`` and ``load_state_dict`` keep their identity; other
    values (numbers, strings, lists, dicts, tensors) are replaced when the state is restored.
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
        """Say that here it is safe to stop, and that this is what to return to if a worker dies."""
        own = inner(self)
        keep_pace(own)
        if own.step == own.commit_step:  # a script that does not report still gets further
            own.step += 1
        own.commit_step = own.step
        leave = own.group.largest(own.asked()) > own.group.place.generation
        if own.group.place.workers > 1:
            keep(self)
        if own.group.place.rank == 0:
            tell_committed(own)
            if own.folder is not None and time.monotonic() >= own.save_at:
                save(self)
        if leave:
            raise Regroup

    if TYPE_CHECKING:  # whatever it was given is an attribute, and may be set

        def __setattr__(self, name: str, value: Any) -> None: ...  # noqa: ANN401 - a state holds anything

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - called only for what is not there
        raise AttributeError(f"the state holds no '{name}': give it to State({name}=...)")


def inner(state: State) -> Inner:
    """Give what the state knows for itself."""
    found: Inner = state.__dict__[_OURS]
    return found


def capture(state: State) -> Tree:
    """Give the state as it is now; its tensors are the state's own."""
    values = {name: value for name, value in vars(state).items() if name != _OURS}
    plain = {name: value.state_dict() if hasattr(value, "state_dict") else value for name, value in values.items()}
    return fold({_STEP: inner(state).step, _LINEAGE: inner(state).lineage, **plain})


def restore(state: State, tree: Tree, *, ours: bool = False) -> None:
    """Make the state what ``tree`` says; if that is ``ours``, its tensors may become the state's own."""
    values = (put_back(tree, capture(state)) or (tree if ours else copied(tree, None))).unfolded()
    own = inner(state)
    own.step = own.commit_step = int(values.pop(_STEP))
    own.lineage = int(values.pop(_LINEAGE, 0))
    for name, value in values.items():
        present: Any = vars(state).get(name)
        if hasattr(present, "load_state_dict"):
            present.load_state_dict(value)
            if hasattr(present, "zero_grad"):  # what a broken step left behind
                present.zero_grad()
        else:
            setattr(state, name, value)


def keep(state: State) -> None:
    """Copy the state as what to return to."""
    own = inner(state)
    own.copy_step = NO_STEP  # while the copy is neither the old one nor the new one
    own.copy = copied(capture(state), own.copy)
    own.copy_step = own.step


def rescue(state: State) -> None:
    """Write the copy of the last commit to the folder, unless a newer one is there. From any thread."""
    own = inner(state)
    if own.folder is None or own.copy is None or own.copy_step == NO_STEP:
        return
    if (commits.step_of(own.folder) or 0) < own.copy_step:
        with aside(own.copy):
            commits.save(own.folder, own.copy, own.copy_step, own.lineage)
        own.tell("saved", own.copy_step)


def save(state: State) -> None:
    """Write the state to its folder; how long that takes decides how soon it may be done again."""
    own = inner(state)
    if own.folder is None:
        return
    begun = time.monotonic()
    commits.save(own.folder, capture(state), own.step, own.lineage)
    ended = time.monotonic()
    own.save_at = ended + (ended - begun) * (1 / _SAVING_SHARE - 1)
    own.tell("saved", own.step)


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


def tell_committed(own: Inner) -> None:
    """Tell how far the training is safe against the loss of a worker, unless that was told just now."""
    now = time.monotonic()
    if now - own.told_at > 0.2:  # noqa: PLR2004 - at most five a second
        own.told_at = now
        own.tell("committed", own.step)
