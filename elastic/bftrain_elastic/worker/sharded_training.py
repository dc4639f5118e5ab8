"""A model and its optimizer, divided among the workers, and divided again when the workers change."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker.process_groups import ProcessGroup
from bftrain_elastic.worker.shard_exchange import fetch
from bftrain_elastic.worker.shard_pieces import (
    LiveShard,
    live_shards,
    local_optimizer,
    make_optimizer_state,
    restore_numbers,
    return_memory,
)
from bftrain_elastic.worker.state_tree import copied, fold

if TYPE_CHECKING:
    from bftrain_elastic.worker.sharded_commits import ShardedCommits

Untyped = Any  # a model, an optimizer, their tensors: torch is imported only where a script uses it


class ShardedTraining:
    """A model divided among the workers of the present group, with its optimizer; or the optimizer alone.

    Each worker trains its share, and commits keep this share and a copy of another worker's, not the whole model. A new
    group takes its shares from the previous one. A single worker has the whole model.

    Args:
        build: makes the whole model, in the same way on each worker.
        shard: divides it by ``fully_shard``, for the process group that exists then, or returns it in
            ``DistributedDataParallel``.
        optimize: makes the optimizer of these parameters; a ``ZeroRedundancyOptimizer`` is divided by parameters.

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

    resharded = True  # tells State that this object divides itself again for each group

    def __init__(
        self, build: Callable[[], Untyped], shard: Callable[[Untyped], object], optimize: Callable[[Untyped], Untyped]
    ) -> None:
        self._build, self._shard, self._optimize = build, shard, optimize
        self.model: Untyped = None
        self.optimizer: Untyped = None
        self._settings: list[dict[str, Any]] = []  # settings of the optimizer's groups, such as learning rates
        self.commits: ShardedCommits | None = None

    def join(self) -> tuple[Untyped, Untyped]:
        """Return model and optimizer for the present group, as they were at the last commit; of all its members."""
        import torch.distributed as dist

        self.model = self.optimizer = None
        gc.collect()  # divided models refer to themselves, and their memory is needed
        self.model = trained = self._build()
        if dist.is_initialized() and dist.get_world_size() > 1:
            if not self._begun:
                for one in self.model.state_dict().values():
                    dist.broadcast(one, src=0)
            divided = self._shard(self.model)
            trained = divided if getattr(divided, "module", None) is self.model else self.model
        self.optimizer = self._make_optimizer()
        if self._begun:
            self._fill()
        return_memory()
        return trained, self.optimizer

    @property
    def _begun(self) -> bool:
        return self.commits is not None and bool(self.commits.begun)

    def _make_optimizer(self) -> Untyped:
        import torch.distributed as dist

        try:
            return self._optimize(self.model.parameters())
        except ValueError as error:
            if dist.is_initialized() or "process group" not in str(error):
                raise
        group = self.commits.group if self.commits is not None else ProcessGroup()
        group.form_alone()  # an optimizer divided by parameters needs a group, however small
        return self._optimize(self.model.parameters())

    def _fill(self) -> None:
        """Fill model and optimizer with the group's starting state."""
        commits = self._attached()
        name = commits.name_of(self)
        make_optimizer_state(name, self.model, self.optimizer, commits.begun)
        fetch(commits.place, commits.source, live_shards(name, self.model, self.optimizer))
        restore_numbers(self.optimizer)
        for optimizer in (self.optimizer, local_optimizer(self.optimizer)):
            for group, settings in zip(optimizer.param_groups, self._settings, strict=True):
                group.update(copied(fold(settings), None).unfolded())

    def _attached(self) -> ShardedCommits:
        if self.commits is None:
            raise BadScript("is not in the State that run() trains", where="ShardedTraining", fix="State(sharded=...)")
        return self.commits

    def live(self, name: str) -> list[LiveShard]:
        """Return this worker's part of model and optimizer."""
        if self.model is None:
            fix = "call state.sharded.join() where train() begins"
            raise BadScript("a commit of what this group has not joined", where="ShardedTraining", fix=fix)
        return live_shards(name, self.model, self.optimizer)

    def whole_model(self) -> dict[str, Untyped]:
        """Return the state_dict of the whole model, in main memory; called in ``train`` by all members.

        Only the first worker gets it; the other workers get an empty dict.
        """
        first = self.commits is None or self.commits.place.rank == 0
        found = {}
        for name, value in self.model.state_dict().items():
            whole = value.full_tensor() if hasattr(value, "full_tensor") else value
            if first:
                found[name] = whole.detach().cpu().clone() if hasattr(whole, "detach") else whole
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the undivided part: the settings of the optimizer."""
        if self.optimizer is not None:
            groups = self.optimizer.param_groups
            self._settings = [{key: value for key, value in one.items() if key != "params"} for one in groups]
        return {"settings": self._settings}

    def load_state_dict(self, found: Mapping[str, Any]) -> None:
        """Set the undivided part; the next :meth:`join` makes model and optimizer."""
        self.model = self.optimizer = None
        self._settings = list(found["settings"])
