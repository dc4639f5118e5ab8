"""A model and its optimizer that are divided among the workers by fully_shard, and divided again when these change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Untyped = Any  # a model, an optimizer, their tensors: torch is imported only where a script uses it


class ShardedTraining:
    """A model that ``fully_shard`` divides among the workers of the present group, and its optimizer.

    Each worker trains its shard. At each commit the whole of both is gathered into the memory of the machine of each
    worker, so that a group of any other size can go on from there, also when workers are lost. On a worker alone
    nothing is divided.

    Args:
        build: makes the whole model, in the same way on each worker.
        shard: divides it by ``fully_shard``, for the process group that exists then.
        optimize: makes the optimizer of these parameters.

    Example::

        def shard(model):
            for layer in model.layers:
                fully_shard(layer)
            fully_shard(model)

        def train(state):
            model, optimizer = state.sharded.join()
            while state.position < STEPS:
                ...  # as on one worker, with this worker's share of each batch
                state.commit()

        sharded = ShardedTraining(build, shard, lambda parameters: torch.optim.AdamW(parameters, lr=1e-3))
        run(State(sharded=sharded, position=0), train)

    """

    resharded = True  # what is divided here may be: it is divided again

    def __init__(
        self,
        build: Callable[[], Untyped],
        shard: Callable[[Untyped], object],
        optimize: Callable[[Untyped], Untyped],
    ) -> None:
        self._build, self._shard, self._optimize = build, shard, optimize
        self.model: Untyped = build()
        self.optimizer: Untyped = None
        self._whole: dict[str, Any] = {"model": dict(self.model.state_dict()), "optimizer": {}}

    def join(self) -> tuple[Untyped, Untyped]:
        """Return model and optimizer for the present group, as they were at the last commit; of all its members."""
        import torch.distributed as dist
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
        from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict as set_optimizer

        self.optimizer = None
        self.model = self._build()
        if dist.is_initialized():
            self._shard(self.model)
        options = StateDictOptions(full_state_dict=True)
        set_model_state_dict(self.model, dict(self._whole["model"]), options=options)
        self.optimizer = self._optimize(self.model.parameters())
        if self._whole["optimizer"]:
            set_optimizer(self.model, self.optimizer, _copied(self._whole["optimizer"]), options=options)
        return self.model, self.optimizer

    def prepare_commit(self) -> None:
        """Gather the whole model and the whole optimizer; of all members, before each commit."""
        from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

        if self.optimizer is not None:
            found = {
                "model": get_model_state_dict(self.model),
                "optimizer": get_optimizer_state_dict(self.model, self.optimizer),
            }
            self._whole = _gathered(found, self._whole)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole model and the whole optimizer of the last commit."""
        return self._whole

    def load_state_dict(self, found: Mapping[str, Any]) -> None:
        """Restore the position from which the next group resumes."""
        self._whole = dict(found)


def _gathered(value: Untyped, into: Untyped) -> Untyped:
    """Return a value with its tensors whole and on the CPU; those of ``into``, gathered before, are written to."""
    import torch

    if isinstance(value, Mapping):
        held = into if isinstance(into, Mapping) else {}
        return {key: _gathered(one, held.get(key)) for key, one in value.items()}
    if not isinstance(value, torch.Tensor):
        return value
    whole = (value.full_tensor() if hasattr(value, "full_tensor") else value).detach()
    if isinstance(into, torch.Tensor) and into.shape == whole.shape and into.dtype == whole.dtype:
        return into.copy_(whole)
    return whole.cpu().clone()


def _copied(value: Untyped) -> Untyped:
    """Return a value in dicts of its own: torch writes its shards into those that it is given."""
    if isinstance(value, Mapping):
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, list) else value
