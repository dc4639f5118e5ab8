"""Accelerate in elastic training: an Accelerator for the present group of workers.

By default Accelerate forms its own group from its launcher's environment, once in the life of a process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker.state_values import inner

if TYPE_CHECKING:
    from bftrain_elastic.worker.state import State


def group_accelerator(state: State, **options: Any) -> Any:  # noqa: ANN401 - accelerate.Accelerator and what it takes
    """Return an Accelerator of the present group; call it in ``train``, which begins again with each group.

    The state keeps model and optimizer as they are without Accelerate. Data come from an ElasticLoader, or are divided
    by ``state.share``: what Accelerate prepares of a DataLoader does not go on where it was.

    Example::

        def train(state):
            accelerator = group_accelerator(state)
            model, optimizer = accelerator.prepare(state.model, state.optimizer)
            for x, y in state.data:
                loss = state.data.weight * mse_loss(model(x), y)
                accelerator.backward(loss)
                ...
    """
    try:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState, GradientState
    except ImportError as error:
        raise BadScript(str(error), where="group_accelerator", fix="pip install accelerate") from error
    import torch

    AcceleratorState._reset_state(reset_partial_state=True)  # noqa: SLF001 - there is no public way
    GradientState._reset_state()  # noqa: SLF001 - as above
    options.setdefault("cpu", not torch.cuda.is_available())
    with group_environment(state.rank, state.workers, torch.get_num_threads()):
        found = in_group(Accelerator, inner(state).wrapped)(**options)
    if found.num_processes != state.workers or found.distributed_type not in {"NO", "MULTI_CPU", "MULTI_GPU"}:
        what = f"Accelerate trains by {found.distributed_type} on {found.num_processes} of {state.workers} workers"
        raise BadScript(what, where="group_accelerator", fix="use none of its plugins that divide a model")
    return found


def in_group(accelerator: Any, wrapped: list[Any]) -> Any:  # noqa: ANN401 - classes of Accelerate, if installed
    """Return an Accelerator class whose models leave the group when it ends; they are put into ``wrapped``."""
    import torch

    class GroupAccelerator(accelerator):  # type: ignore[misc]  # a class that is known when it is imported
        """An Accelerator whose models leave the group when it ends, which is not its own to end."""

        def prepare(self, *parts: Any, **named: Any) -> Any:  # noqa: ANN401 - as Accelerate has it
            for one in parts:
                if isinstance(one, torch.nn.Module):  # which may bear the marks of an earlier group
                    vars(one).pop("_is_accelerate_prepared", None)
                    if (original := vars(one).pop("_original_forward", None)) is not None:
                        one.forward = original
            return super().prepare(*parts, **named)

        def prepare_model(self, model: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as above
            prepared = super().prepare_model(model, *arguments, **named)
            if hasattr(prepared, "_remove_autograd_hooks"):
                wrapped.append(prepared)
            return prepared

        def end_training(self) -> None:
            for tracker in self.trackers:
                tracker.finish()

    return GroupAccelerator


@contextmanager
def group_environment(rank: int, workers: int, threads: int) -> Iterator[None]:
    """Set torchrun's variables for the group, which Accelerate reads; remove them for a lone worker."""
    group = {
        "RANK": rank,
        "WORLD_SIZE": workers,
        "LOCAL_WORLD_SIZE": 1,
        "LOCAL_RANK": os.environ.get("LOCAL_RANK", "0"),
    }
    shown = {**group, "OMP_NUM_THREADS": threads, "MASTER_ADDR": "127.0.0.1"} if workers > 1 else {}
    before = {name: os.environ.pop(name, None) for name in (*group, "OMP_NUM_THREADS", "MASTER_ADDR", "MASTER_PORT")}
    os.environ.update({name: str(value) for name, value in shown.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
