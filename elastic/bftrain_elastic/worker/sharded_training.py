"""A model and its optimizer, divided among the workers of a group, and divided again for the next group.

``torch.distributed.checkpoint`` writes the shares of all workers to the task's folder. The state names the folder of
its shares and is written last, so it never names incomplete shares. A new group of any size reads its shares from
there.
"""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.errors import BadCommit, BadScript
from bftrain_elastic.worker import checkpoint_file
from bftrain_elastic.worker.lazy_torch import dist, torch
from bftrain_elastic.worker.process_groups import GroupRank, ProcessGroup
from bftrain_elastic.worker.state_transfer import share_state
from bftrain_elastic.worker.state_tree import copied, fold
from bftrain_elastic.worker.state_values import StateBase, capture, inner, restore

Untyped = Any  # a model, an optimizer, their tensors: torch is imported only where a script uses it
# Plain numbers of an optimizer, kept as tensors
_NUMBERS: Final[Mapping[str, type]] = {"int": int, "float": float, "bool": bool}
_BEGINNING: Final = "shards-"
_ZERO: Final = "ZeroRedundancyOptimizer"


class ShardedTraining:
    """A model divided among the workers of the current group, with its optimizer; or the optimizer alone.

    Each worker trains its share. Commits write all shares to the task's folder, for up to 5 % of the time and before
    each planned change; all nodes must share the folder. A new group reads its shares from there. A single worker has
    the whole model.

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
        """Return model and optimizer for the current group, as last written to the folder; called by all members."""
        self.model = self.optimizer = None
        gc.collect()  # divided models refer to themselves, and their memory is needed
        self.model = trained = self._build()
        if dist.is_initialized() and dist.get_world_size() > 1:
            if self._source is None:
                for one in self.model.state_dict().values():
                    dist.broadcast(one, src=0)
            divided = self._shard(self.model)
            trained = divided if getattr(divided, "module", None) is self.model else self.model
        self.optimizer = self._make_optimizer()
        if self._source is not None:
            self._fill(self._source)
        return trained, self.optimizer

    @property
    def _source(self) -> Path | None:
        return self.commits.source if self.commits is not None else None

    def _make_optimizer(self) -> Untyped:
        try:
            return self._optimize(self.model.parameters())
        except ValueError as error:
            if dist.is_initialized() or "process group" not in str(error):
                raise
        group = self.commits.group if self.commits is not None else ProcessGroup()
        group.form_alone()  # an optimizer divided by parameters needs a group, however small
        return self._optimize(self.model.parameters())

    def _fill(self, source: Path) -> None:
        """Fill model and optimizer with the group's starting state."""
        from torch.distributed import checkpoint

        commits, reader = self._attached(), checkpoint.FileSystemReader(source)
        try:
            saved = reader.read_metadata().state_dict_metadata
        except FileNotFoundError as error:
            fix = "let all nodes of the task share this folder"
            raise BadCommit("is missing, though the state names it", where=str(source), fix=fix) from error
        name = commits.name_of(self)
        _make_optimizer_state(f"{name}/optimizer/", self.model, self.optimizer, saved)
        planner = checkpoint.DefaultLoadPlanner(allow_partial_load=True)
        checkpoint.load(self.tensors(name), storage_reader=reader, planner=planner)
        _restore_numbers(self.optimizer)
        for optimizer in (self.optimizer, _local(self.optimizer)):
            for group, settings in zip(optimizer.param_groups, self._settings, strict=True):
                group.update(copied(fold(settings), None).unfolded())

    def _attached(self) -> ShardedCommits:
        if self.commits is None:
            raise BadScript("is not in the State that run() trains", where="ShardedTraining", fix="State(sharded=...)")
        return self.commits

    def tensors(self, name: str) -> dict[str, Untyped]:
        """Return this worker's part of model and optimizer, by the names of the whole tensors.

        Each name starts with ``name``. Raises ``BadScript`` before the first :meth:`join`.
        """
        if self.model is None:
            fix = "call state.sharded.join() at the start of train()"
            raise BadScript("this group has committed before it joined", where="ShardedTraining", fix=fix)
        tensors, names = {}, _names(self.model)
        for key, tensor in self.model.state_dict(keep_vars=True).items():
            if names.get(id(tensor)) == key:  # a tied parameter has two names
                tensors[f"{name}/model/{key}"] = tensor.detach()
        for number, parameter in enumerate(_parameters(self.optimizer)):
            for key, value in _local(self.optimizer).state.get(parameter, {}).items():
                place = f"{name}/optimizer/{names.get(id(parameter), f'#{number}')}/{key}"
                tensors |= _tensor_of(place, value, parameter)
        return tensors

    def state_dict(self) -> dict[str, Any]:
        """Return the undivided part: the settings of the optimizer's groups."""
        if self.optimizer is not None:
            groups = self.optimizer.param_groups
            self._settings = [{key: value for key, value in one.items() if key != "params"} for one in groups]
        return {"settings": self._settings}

    def load_state_dict(self, found: Mapping[str, Any]) -> None:
        """Set the undivided part to ``found``; the next :meth:`join` makes model and optimizer."""
        self.model = self.optimizer = None
        self._settings = list(found["settings"])


class ShardedCommits:
    """Saves and restores all sharded trainings in a state, together with the rest of it."""

    def __init__(self, state: StateBase, parts: Mapping[str, Any]) -> None:
        self._own = inner(state)
        self._parts = parts
        self._initial = copied(capture(state), None)
        self.named = ""  # name of the folder with the shares of the state that was read or written last
        for part in parts.values():
            part.commits = self

    @property
    def place(self) -> GroupRank:
        """The place of this worker in the current group."""
        return self._own.group.place

    @property
    def group(self) -> ProcessGroup:
        """The current group."""
        return self._own.group

    @property
    def source(self) -> Path | None:
        """The folder with the shares from which the current group starts; None: the script's initial state."""
        folder = self._own.saver.folder
        return folder / self.named if folder is not None and self.named else None

    def name_of(self, part: object) -> str:
        """Return the name of a part in the state."""
        return next(name for name, one in self._parts.items() if one is part)

    def commit(self, state: StateBase, *, planned: bool) -> None:
        """Write the state if a save is due or the group is about to change; called by all members."""
        saver = self._own.saver
        due = self.place.rank == 0 and (saver.soon or time.monotonic() >= saver.due_at)
        if self._own.group.largest(int(due)) or planned:
            self._write(state)

    def _write(self, state: StateBase) -> bool:
        """Write the state while all members wait; return whether it is on disk."""
        from torch.distributed import checkpoint

        own, begun = self._own, time.monotonic()
        folder, step = own.saver.folder, own.progress.step
        if folder is None:
            return False
        own.saver.soon, failure, before = False, None, self.named
        name = f"{_BEGINNING}{own.saver.lineage}-{self.place.generation}-{step}"
        if name == self.named:  # never write where the state on disk points
            name += "-again"
        tensors = {key: one for part_name, part in self._parts.items() for key, one in part.tensors(part_name).items()}
        try:
            checkpoint.save(tensors, checkpoint_id=folder / name)
            if self.place.rank == 0:
                self._publish(state, folder, name)
        except (OSError, BadCommit, checkpoint.api.CheckpointException) as error:
            failure = OSError(" ".join(str(error).split()))
        if own.group.largest(int(failure is not None)):
            if self.place.rank == 0:
                own.saver.warn_not_saved(step, failure or OSError("another worker could not write its share"))
            self.named = before
            return False
        self.named = name
        own.copies.last, own.copies.step = copied(capture(state), None), step
        if self.place.rank == 0:
            own.saver.report_saved(step, begun)
        return True

    def _publish(self, state: StateBase, folder: Path, name: str) -> None:
        """Name completely written shares in the state on disk, and remove the others."""
        self.named = name
        checkpoint_file.save(folder, capture(state), self._own.progress.step, self._own.saver.lineage)
        for path in folder.glob(f"{_BEGINNING}*"):
            if path.name != name:
                shutil.rmtree(path, ignore_errors=True)

    def save_together(self, state: StateBase) -> None:
        """Write the state as it is now; called by all members, and returns when it is on disk."""
        if self._own.saver.folder is not None and not self._write(state):
            raise OSError(
                f"the shares of step {self._own.progress.step} could not be written to {self._own.saver.folder}"
            )

    def save(self, state: StateBase) -> None:
        """Write the state of a task with a single worker, unless the disk has this step.

        Raises BadCommit if there are more workers, since their shares cannot be included.
        """
        folder, step = self._own.saver.folder, self._own.progress.step
        if folder is None or checkpoint_file.step_of(folder) == step:
            return
        if self.place.workers > 1:
            raise BadCommit(f"the shares of step {step} are with workers that have left", where=str(folder))
        self.save_together(state)

    def regroup(self, state: StateBase, *, holds: bool) -> None:
        """Restore the state on disk, or the script's initial state; called by all members.

        ``holds``: this worker still has the state of an earlier group, which may be newer than the disk.
        """
        self.named = ""
        if self.place.rank == 0 and not self._own.saver.load() and holds:
            restore(state, self._initial)
        if self.place.workers > 1:
            share_state(state, [0], fresh=not holds)
        self._own.copies.last, self._own.copies.step = copied(capture(state), None), self._own.progress.step


def _names(model: Untyped) -> dict[int, str]:
    """Return the first name of each tensor of a model, by its identity."""
    tensors = reversed(model.state_dict(keep_vars=True).items())
    return {id(one): name for name, one in tensors if hasattr(one, "data_ptr")}


def _parameters(optimizer: Untyped) -> list[Untyped]:
    return [one for group in optimizer.param_groups for one in group["params"]]


def _local(optimizer: Untyped) -> Untyped:
    """Return the optimizer of this worker's parameters."""
    return optimizer.optim if any(kind.__name__ == _ZERO for kind in type(optimizer).__mro__) else optimizer


def _tensor_of(place: str, value: Untyped, parameter: Untyped) -> dict[str, Untyped]:
    """Return a value of an optimizer as a tensor, with its name; empty for ``None``."""
    if isinstance(value, torch.Tensor):
        if hasattr(value, "full_tensor") and value.shape != parameter.shape:
            what = f"its optimizer divides {place} differently from the parameter"
            raise BadScript(what, where="ShardedTraining", fix="use an optimizer with values of its shape")
        return {place: value.detach()}
    if type(value).__name__ in _NUMBERS:
        return {f"{place}#{type(value).__name__}": torch.tensor(value)}
    if value is None:
        return {}
    what = f"its optimizer keeps a {type(value).__name__} in {place}"
    raise BadScript(what, where="ShardedTraining", fix="use an optimizer that keeps only tensors and numbers")


def _make_optimizer_state(begin: str, model: Untyped, optimizer: Untyped, saved: Mapping[str, Untyped]) -> None:
    """Create the values of an optimizer for this worker's parameters, as saved ones are; they are filled later."""
    local, names = _local(optimizer), _names(model)
    own = {id(one) for one in _parameters(local)}
    keys: dict[str, list[tuple[str, Untyped]]] = {}
    for full_name, one in saved.items():
        if full_name.startswith(begin):
            name, _, key = full_name.removeprefix(begin).rpartition("/")
            keys.setdefault(name, []).append((key, one))
    fused = any(group.get("fused") or group.get("capturable") for group in local.param_groups)
    for number, parameter in enumerate(_parameters(optimizer)):
        for key, one in keys.get(names.get(id(parameter), f"#{number}"), ()) if id(parameter) in own else ():
            dtype = one.properties.dtype
            if one.size == parameter.shape and one.size:
                local.state[parameter][key] = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
            else:  # a step count is on the CPU, unless the optimizer wants it elsewhere
                device = parameter.device if one.size or (fused and "#" not in key) else "cpu"
                local.state[parameter][key] = torch.zeros(one.size, dtype=dtype, device=device)


def _restore_numbers(optimizer: Untyped) -> None:
    """Convert values that were numbers back, after they were filled as tensors."""
    for state in _local(optimizer).state.values():
        for key in [one for one in state if "#" in one]:
            name, _, kind = key.partition("#")
            state[name] = _NUMBERS[kind](state.pop(key).item())
