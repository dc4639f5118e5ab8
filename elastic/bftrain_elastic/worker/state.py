"""State: all of a training that has to survive when its workers change."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker.process_groups import own_gpu
from bftrain_elastic.worker.state_agreement import commit_together
from bftrain_elastic.worker.state_saving import save_if_due, tell_on_disk_if_due
from bftrain_elastic.worker.state_values import OWN, StateBase, StateInternals, inner, keep


class RegroupSignal(BaseException):
    """Leaves the script's ``train`` at a commit; no error, and nothing that ``except Exception`` should catch."""


class State(StateBase):
    """Model, optimizer, and other values that survive: ``State(model=..., optimizer=..., position=0, best=1e9)``.

    Everything given is an attribute. Objects with ``state_dict`` and ``load_state_dict`` keep their identity; other
    values (numbers, strings, lists, dicts, tensors) are replaced when the state is restored.

    The values of rank 0 count: at each commit all workers get them if theirs differ. So a best loss or a count that
    only rank 0 keeps is not lost when its node leaves. What other ranks alone know has to be merged by the script with
    ``torch.distributed`` before it commits, and values meant to differ between workers do not belong into the state.
    Models, optimizers and other objects with a ``state_dict`` are not compared: every worker must change these alike.
    Of values that contain a tensor of more than 64 KiB or on a GPU those of rank 0 are sent when not all workers have
    changed the same of them since the last commit, and before each planned change of the group.
    """

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 - any values that the script wants to keep
        self.__dict__[OWN] = StateInternals()
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
        largest = commit_together(self) if own.group.place.workers > 1 else _commit_alone(self)
        if own.group.place.rank == 0:
            save_if_due(self)
            tell_on_disk_if_due(own)
        if largest > own.group.place.generation:
            raise RegroupSignal
        own.place = "script"

    if TYPE_CHECKING:  # every value is an attribute, and may be set

        def __setattr__(self, name: str, value: Any) -> None: ...  # noqa: ANN401 - a state holds anything

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - called only for what is not there
        raise AttributeError(f"the state holds no '{name}': give it to State({name}=...)")


def _commit_alone(state: State) -> int:
    """Copy the state if an error may have to return to it; return the generation that this worker is asked for."""
    own = inner(state)
    if own.keeps_alone:
        keep(state)
    return own.asked()


def leave_group(state: State, *, broken: bool = False) -> None:
    """Leave the group, and forget the model that was wrapped for it."""
    own = inner(state)
    if own.parallel is not None:
        own.parallel._remove_autograd_hooks()  # noqa: SLF001 - or they would wait for the members of a group that is gone
        own.parallel = None
    own.group.leave(broken=broken)


def keep_pace(own: StateInternals) -> None:
    """Know how long it takes from commit to commit; what took long once is soon forgotten."""
    now = time.monotonic()
    if own.committed_at:
        own.pace_s = max(now - own.committed_at, own.pace_s / 2)
    own.committed_at = now
