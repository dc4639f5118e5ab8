"""Replicas: whether all members of a group train the same model, and the likely causes if not.

Each member draws the same sample of numbers from its parameters, optimizer states and learning rates, and the smallest
and largest of each number are compared. Replicas differ where a gradient was not exchanged or a worker began from other
weights, which shows in all elements of a tensor, so a sample is enough; its offset changes from one comparison to the
next, so that in time all elements are compared.
"""

from __future__ import annotations

import gc
import hashlib
import math
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker import batch_shares
from bftrain_elastic.worker.shard_keeper import StateBase
from bftrain_elastic.worker.state_tree import version_of
from bftrain_elastic.worker.state_values import StateInternals, inner

_EVERY: Final = 500  # commits between two comparisons, once a group is as old; before that at 2, 4, 8, ... commits
_TENSORS: Final = 256  # that are looked at in one comparison, at most
_NUMBERS: Final = 4096  # that are compared of all of them; as many on all members
_RATES: Final = 32  # learning rates that are compared
_ROUNDINGS: Final = 8.0  # what machines may compute differently, in roundings of the type; grows as the root of commits
_LARGEST_TOLERANCE: Final = 1e-3  # relative
_NOT_FINITE: Final = 1e300  # stands for what is no number, which cannot be compared
_HASH_BYTES: Final = 6  # so that a float holds it exactly

Spread = Callable[[Sequence[float]], list[tuple[float, float]]]
Tensor = Any  # torch is imported only where a script uses it


def comparison_is_due(commits: int) -> bool:
    """Return whether replicas are to be compared at this commit of a group."""
    return commits > 1 and (commits & (commits - 1) == 0 if commits < _EVERY else commits % _EVERY == 0)


# Optimizers: torch tells which of them step, so that also those are known which the script did not put into its state.

_stepping: Final[dict[int, weakref.ref[Any]]] = {}  # those that stepped in this group, in that order
_watching: Final[list[Any]] = []
_since_commit: Final[list[None]] = []  # one if an optimizer stepped since the last commit
_last_step: Final[dict[weakref.ref[Any], tuple[weakref.ref[Any], int]]] = {}  # a parameter: its gradient, and version


def watch_optimizers() -> None:
    """Record from now on which optimizers step, if the script uses torch."""
    if "torch" in sys.modules and not _watching:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        _watching.append(register_optimizer_step_post_hook(note_step))


def forget_optimizers() -> None:
    """Forget which optimizers stepped: the next group may have others."""
    _stepping.clear()
    _last_step.clear()


def note_step(optimizer: Any, *_: object) -> None:  # noqa: ANN401 - torch.optim.Optimizer
    """Record that an optimizer stepped."""
    if id(optimizer) not in _stepping:
        _stepping[id(optimizer)] = weakref.ref(optimizer)
    _since_commit[:] = [None]
    parameter, gradient = next(_with_gradients(optimizer), (None, None))
    if parameter is not None:
        _last_step.clear()
        _last_step[weakref.ref(parameter)] = weakref.ref(gradient), version_of(gradient)


def _with_gradients(optimizer: Any) -> Iterator[tuple[Tensor, Tensor]]:  # noqa: ANN401 - torch.optim.Optimizer
    """Yield parameters with their gradients, of those that are neither sparse nor divided."""
    for group in optimizer.param_groups:
        for one in group["params"]:
            grad = one.grad
            if grad is not None and type(grad).__name__ == "Tensor" and str(grad.layout) == "torch.strided":
                yield one, grad


def has_pending_gradients() -> bool:
    """Return whether a commit is made between the parts of a step: gradients that would be lost with a change.

    Then no optimizer has stepped since the last commit, and there are other gradients than in the last step. Those that
    are no numbers do not count: a GradScaler leaves out the step.
    """
    stepped = bool(_since_commit)
    _since_commit.clear()
    for reference, (gradient, version) in () if stepped else _last_step.items():
        present = getattr(reference(), "grad", None)
        if present is None or (present is gradient() and version_of(present) == version) or not bool(present.any()):
            return False
        stepping = [one for one in (found() for found in _stepping.values()) if one is not None]
        return all(bool(grad.isfinite().all()) for one in stepping for _, grad in _with_gradients(one))
    return False


def trained_parameters(model: Any) -> list[tuple[int, bool]]:  # noqa: ANN401 - torch.nn.Module
    """Return which parameters a model has, and whether each is trained."""
    return [(id(one), one.requires_grad) for one in model.parameters()]


class TrainedParts(NamedTuple):
    """The trained parts of a script: models of its state, optimizers that stepped, and everything in its state."""

    models: Sequence[Any]
    optimizers: Sequence[Any]
    held: Sequence[Any]

    @classmethod
    def of(cls, values: Iterable[Any]) -> TrainedParts:
        """Find the parts, starting from the values of a state."""
        held = list(_with_parts(values))
        models = [one for one in held if callable(getattr(one, "parameters", None))]
        stepping = [one for one in (reference() for reference in _stepping.values()) if one is not None]
        divided = {id(getattr(one, "optim", None)) for one in stepping}  # each worker's part of another optimizer
        return cls(models, [one for one in stepping if id(one) not in divided], held)

    def parameters(self) -> list[Tensor]:
        """Return each parameter once."""
        found = [one for model in self.models for one in model.parameters()]
        found += [one for optimizer in self.optimizers for group in optimizer.param_groups for one in group["params"]]
        return list({id(one): one for one in found}.values())

    def not_kept(self) -> list[str]:
        """Return the names of parts that are trained and would be lost with their worker."""
        kept = {id(one) for one in self.held}
        weights = {id(one) for model in self.models for one in model.parameters()}
        trained = {
            id(one) for optimizer in self.optimizers for group in optimizer.param_groups for one in group["params"]
        }
        lost = [one for one in self.optimizers if id(one) not in kept]
        divided = any(_SHARDS.intersection(kind.__name__ for kind in type(one).__mro__) for one in lost)
        found = ["model"] * bool(trained - weights)
        return found + (["divided"] if divided else ["optimizer"] * any(one.state for one in lost))


def _with_parts(values: Iterable[Any], depth: int = 2) -> Iterator[Any]:
    """Yield values, and the parts of those that have a state_dict."""
    for value in values:
        yield value
        if not depth or callable(getattr(value, "parameters", None)):
            continue
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
        if inside is None and hasattr(value, "state_dict") and not hasattr(value, "param_groups"):
            inside = vars(value).values() if hasattr(value, "__dict__") else ()
        wrapped = getattr(value, "optimizer", None)  # as of Accelerate
        yield from _with_parts([*(inside or ()), *([] if wrapped is None else [wrapped])], depth - 1)


# Sharded models: a state is whole on every worker, so that each of them can go on alone.

_SHARDS: Final = frozenset({"FullyShardedDataParallel", "DTensor", "ZeroRedundancyOptimizer", "DeepSpeedEngine"})

_WHOLE: Final = (
    "divide a model by fully_shard, or an optimizer by ZeroRedundancyOptimizer, in a ShardedTraining, or train all "
    "of it with state.parallel(); with --backend process a script writes its shards itself when SIGTERM comes"
)


def refuse_sharded(values: Iterable[Any]) -> None:
    """Raise BadScript if a model or optimizer is divided among workers, which cannot be resized while it trains."""
    for value in _with_parts(one for one in values if not getattr(one, "resharded", False)):
        inside = [*value.modules(), *value.parameters()] if callable(getattr(value, "modules", None)) else []
        for one in [value, *inside]:
            if shards := _SHARDS.intersection(kind.__name__ for kind in type(one).__mro__):
                what = f"a {type(value).__name__} is divided among the workers ({', '.join(shards)})"
                raise BadScript(f"{what}: each of a State's values must be whole", where="State", fix=_WHOLE)


# Comparing


def compare_replicas(own: StateInternals, values: Iterable[Any], spread: Spread) -> None:
    """Report if members train apart, or train parts that are not kept; called by all members, at each commit.

    ``spread`` returns the smallest and the largest of each number over all members.
    """
    workers = own.group.place.workers
    if not comparison_is_due(own.commits):
        return
    parts = TrainedParts.of(values)
    report = own.report if own.group.place.rank == 0 else lambda _message: None
    if causes := parts.not_kept():
        report({"type": "misuse", "step": own.step, "causes": causes})
    if workers == 1:
        return
    mine = ReplicaSample.of(parts, own.commits // _EVERY + own.commits.bit_length())
    seed = 0.0 if own.by_sample else own.seed_drawn
    *found, (fewest, most), seeds = spread([*mine.numbers, 0.0 if batch_shares.used else own.batch_seen, seed])
    if most - fewest == 1:  # a batch that the workers do not divide; lengths of sequences differ by more
        report({"type": "misuse", "step": own.step, "causes": ["shares"]})
    if seeds[0] == seeds[1] != 0.0:
        report({"type": "misuse", "step": own.step, "causes": ["random"]})
    relative, apart = mine.largest_difference(found, own.commits)
    if apart:
        report({"type": "drift", "step": own.step, "relative": relative, "causes": likely_causes(own, causes, apart)})


def watch_forward(own: StateInternals, model: Any) -> None:  # noqa: ANN401 - a torch module
    """Record what workers are compared by: their batches, and whether the model draws random numbers."""
    model.register_forward_pre_hook(lambda _model, inputs: note_batch(own, inputs))
    generator = _generator_of(next(model.parameters()).device)
    model.register_forward_pre_hook(lambda *_: note_numbers(own, generator))
    model.register_forward_hook(lambda *_: note_numbers(own, generator, after=True))


def note_numbers(own: StateInternals, generator: Any, *, after: bool = False) -> None:  # noqa: ANN401 - torch.Generator
    """Record around a forward pass where the random numbers are, if workers are compared at the next commit."""
    if not comparison_is_due(own.commits + 1):
        return
    state = generator.get_state()
    if not after:
        own.numbers_before = state
    elif own.numbers_before is not None:
        own.seed_drawn = 0.0 if state.equal(own.numbers_before) else _hash([generator.initial_seed()])


def _generator_of(device: Any) -> Any:  # noqa: ANN401 - torch's device and generator
    import torch

    return torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator


def note_batch(own: StateInternals, inputs: Sequence[Any]) -> None:
    """Record how many samples a worker gave to its model last."""
    first = next((one for one in inputs if hasattr(one, "shape") and len(one.shape)), None)
    own.batch_seen = float(first.shape[0]) if first is not None else 0.0


def compare_states(state: StateBase, spread: Spread) -> None:
    """Compare the content of a state."""
    own = inner(state)
    values = [value for value in vars(state).values() if value is not own]
    first = comparison_is_due(own.commits) and own.group.place.rank == 0
    if first and not own.is_step_read and all(map(_is_of_steps, values)):
        own.report({"type": "misuse", "step": own.step, "causes": ["position"]})
    compare_replicas(own, values, spread)


def _is_of_steps(value: Any) -> bool:  # noqa: ANN401 - a value of a state
    """Return whether a value serves the steps, as a model or an optimizer does, and so says nothing of the data."""
    parts = ("parameters", "param_groups")
    return any(hasattr(value, name) for name in parts) or type(value).__module__.startswith(
        ("torch.optim.", "torch.amp.")
    )


class ReplicaSample(NamedTuple):
    """Numbers that are the same on all members if they train the same, equally many from each part."""

    numbers: list[float]
    pieces: list[tuple[int, int, float]]  # of each tensor: where its numbers are, and the rounding of its type

    @classmethod
    def of(cls, parts: TrainedParts, turn: int) -> ReplicaSample:
        """Draw the sample of a comparison."""
        parameters = _plain(parts.parameters())
        states = _plain(one for optimizer in parts.optimizers for one in _moments(optimizer))
        rates = [float(group["lr"]) for optimizer in parts.optimizers for group in optimizer.param_groups]
        numbers, pieces = [_hash([*map(_shape, parameters), len(rates)]), *_filled(rates, _RATES)], []
        for tensors in (parameters, states):
            numbers.append(_hash(map(_shape, tensors)))
            begin, drawn = len(numbers), 0
            for values, rounding in _drawn(tensors, turn):
                pieces.append((begin + drawn, begin + drawn + len(values), rounding))
                numbers += values
                drawn += len(values)
            numbers += [0.0] * (_NUMBERS - drawn)
        return cls(numbers, pieces)

    def largest_difference(self, found: Sequence[tuple[float, float]], commits: int) -> tuple[float, list[str]]:
        """Return how far members are apart, relative to the size of a tensor, and the causes if too far."""
        if found[0][0] != found[0][1]:
            return 1.0, ["layout"]
        largest, tolerable = 0.0, True
        moments = 2 + _RATES + _NUMBERS
        alike = found[moments - 1][0] == found[moments - 1][1]  # or states are divided among the members
        for begin, end, rounding in self.pieces:
            if begin >= moments and not alike:
                break
            size = math.hypot(*(max(abs(low), abs(high)) for low, high in found[begin:end]))
            apart = math.hypot(*(high - low for low, high in found[begin:end])) / size if size else 0.0
            tolerable &= apart <= min(_ROUNDINGS * rounding * math.sqrt(commits), _LARGEST_TOLERANCE)
            largest = max(largest, min(apart, 1.0))
        rates = any(low != high for low, high in found[1 : 1 + _RATES])
        return largest, ["rates"] if rates else [] if tolerable else ["weights"]


def _drawn(tensors: Sequence[Tensor], turn: int) -> Iterator[tuple[list[float], float]]:
    """Yield numbers drawn from tensors, about as many of each, with the rounding error of their type."""
    import torch

    every = math.ceil(len(tensors) / _TENSORS)
    chosen = tensors[turn % max(every, 1) :: max(every, 1)]
    share = _NUMBERS // max(len(chosen), 1)
    samples = []
    for one in chosen:
        flat, stride = one.reshape(-1), math.ceil(one.numel() / share)
        samples.append(flat[turn % stride :: stride].to(torch.float64))
    devices = {one.device for one in samples}
    lists = {device: torch.cat([one for one in samples if one.device == device]).tolist() for device in devices}
    for one, sample in zip(chosen, samples, strict=True):
        values = lists[sample.device]
        mine, lists[sample.device] = values[: len(sample)], values[len(sample) :]
        finite = [value if math.isfinite(value) else _NOT_FINITE for value in mine]
        yield finite, torch.finfo(one.dtype).eps if one.dtype.is_floating_point else 0.0


def _moments(optimizer: Any) -> Iterator[Tensor]:  # noqa: ANN401 - torch.optim.Optimizer
    """Yield the tensors that an optimizer keeps, in the order of its parameters."""
    import torch

    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            yield from (state[name] for name in sorted(state) if isinstance(state[name], torch.Tensor))


def _plain(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return the tensors that can be sampled: dense ones on one machine."""
    import torch

    plain = [
        one.detach() for one in tensors if one.numel() and one.layout == torch.strided and one.device.type != "meta"
    ]
    return [torch.view_as_real(one) if one.is_complex() else one for one in plain if type(one) is torch.Tensor]


def _filled(values: Sequence[float], length: int) -> list[float]:
    return [*values[:length], *[0.0] * (length - len(values[:length]))]


def _shape(tensor: Tensor) -> str:
    return f"{tensor.dtype}{tuple(tensor.shape)}"


def _hash(words: Iterable[object]) -> float:
    text = " ".join(map(str, words)).encode()
    return float(int.from_bytes(hashlib.blake2b(text, digest_size=_HASH_BYTES).digest(), "little"))


# Causes


def _frameworks_without_group() -> list[str]:
    """Return the names of loaded frameworks that do not see the group and train by themselves."""
    accelerate = sys.modules.get("accelerate.state")
    seen = getattr(getattr(accelerate, "PartialState", None), "_shared_state", {})
    if seen and seen.get("distributed_type") is not None and _processes(seen) == 1:
        return ["huggingface"] if _made("transformers.trainer", "Trainer") else ["accelerate"]
    for name in ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"):
        if any(one.world_size == 1 and one.training for one in _made(name, "Trainer")):
            return ["lightning"]
    return []


def _processes(seen: dict[str, Any]) -> int:
    return int(seen.get("num_processes", seen.get("_num_processes", 1)))


def _made(module: str, name: str) -> list[Any]:
    """Return the objects of a class whose module is imported already."""
    kind = getattr(sys.modules.get(module), name, None)
    return [] if kind is None else [one for one in gc.get_objects() if issubclass(type(one), kind)]


def likely_causes(own: StateInternals, not_kept: Sequence[str], apart: Sequence[str]) -> list[str]:
    """Return likely causes of a difference: parts not kept, frameworks that see no group, and what differs."""
    found = [*_frameworks_without_group(), *not_kept]
    if found or "layout" in apart:
        return found or list(apart)
    if os.environ.get("BFTRAIN_LAUNCHER") == "horovod":
        steps = [one for one in (reference() for reference in _stepping.values()) if one is not None]
        return list(apart) if any(hasattr(one, "synchronize") for one in steps) else ["horovod"]
    inside = getattr(own.parallel, "module", None)
    if inside is not None and own.wrapped_trains != trained_parameters(inside):
        return ["rewrap"]
    wrapped = own.parallel is not None or _made("torch.nn.parallel.distributed", "DistributedDataParallel")
    return list(apart) if wrapped else ["parallel"]
