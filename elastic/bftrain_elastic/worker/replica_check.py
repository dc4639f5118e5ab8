"""Replicas: whether all members of a group train the same model. A state compares them at some of its commits.

Each member projects a sample of each parameter, optimizer state and learning rate onto one number. Replicas whose
gradients were not exchanged, or that began with other weights, differ in all elements of a tensor, so a sample is
enough; its offset changes from one comparison to the next, so that in time all elements are compared.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker.state_values import StateInternals

_EVERY: Final = 500  # commits between two comparisons, once a group is as old; before that at 2, 4, 8, ... commits
_SAMPLE: Final = 4096  # elements of a tensor that are compared at a time
_ROUNDINGS: Final = 8.0  # different CPUs may round differently: tolerance in roundings, times the root of the commits
_LARGEST_TOLERANCE: Final = 1e-3  # relative

Spread = Callable[[Sequence[float]], list[tuple[float, float]]]
Tensor = Any  # torch is imported only where a script uses it


def comparison_is_due(commits: int) -> bool:
    """Return whether replicas are to be compared at this commit of a group."""
    return commits > 1 and (commits & (commits - 1) == 0 if commits < _EVERY else commits % _EVERY == 0)


def compare_replicas(own: StateInternals, values: Iterable[Any], spread: Spread) -> None:
    """Report a drift if the trained values differ between the members, who all call this at each commit.

    ``spread`` returns the smallest and the largest of each number over all members.
    """
    if own.group.place.workers == 1 or not comparison_is_due(own.commits):
        return
    parameters, states = _trained_tensors(values)
    layouts = spread([_layout(parameters), _layout(states)])
    same_parameters, same_states = (low == high for low, high in layouts)
    # States that a ZeroRedundancyOptimizer divides among the members cannot be compared
    tensors = [*parameters, *(states if same_states else ())]
    relative, differs = _difference(tensors, own.commits, spread) if same_parameters else (1.0, True)
    if differs and own.group.place.rank == 0:
        own.report({"type": "drift", "step": own.step, "relative": relative})


def _difference(tensors: Sequence[Tensor], commits: int, spread: Spread) -> tuple[float, bool]:
    """Return the largest difference between members, relative to the size of a tensor, and whether it is too large."""
    import torch

    numbers, roundings = list[float](), list[float]()
    for tensor in tensors:
        stride = math.ceil(tensor.numel() / _SAMPLE)
        offset = (commits // _EVERY + commits.bit_length()) % stride
        sample = tensor.reshape(-1)[offset::stride].to("cpu", torch.float64).nan_to_num()
        waves = torch.cos(torch.arange(len(sample), dtype=torch.float64))
        numbers += [float(sample @ waves), float(sample.norm())]
        roundings.append(torch.finfo(tensor.dtype).eps if tensor.dtype.is_floating_point else 0.0)
    pairs = spread(numbers) if numbers else []
    largest, differs = 0.0, False
    for (low, high), (_, size), rounding in zip(pairs[::2], pairs[1::2], roundings, strict=True):
        relative = (high - low) / size if size else 0.0
        differs |= relative > min(_ROUNDINGS * rounding * math.sqrt(commits), _LARGEST_TOLERANCE)
        largest = max(largest, min(relative, 1.0))
    return largest, differs


def _trained_tensors(values: Iterable[Any]) -> tuple[list[Tensor], list[Tensor]]:
    """Return all parameters, and the states and learning rates of all optimizers, in the same order on all members."""
    import torch

    parameters, states = list[Tensor](), list[Tensor]()
    for value in with_parts(values):
        if callable(getattr(value, "parameters", None)):
            parameters += value.parameters()
        for group in getattr(value, "param_groups", ()):
            parameters += group["params"]
            states.append(torch.tensor(float(group.get("lr", 0.0)), dtype=torch.float64))
            for state in (value.state.get(one, {}) for one in group["params"]):
                states += [state[name] for name in sorted(state) if isinstance(state[name], torch.Tensor)]
    return _plain(parameters), _plain(states)


def _plain(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return the tensors that can be compared, each once: dense ones that are whole on this worker."""
    import torch

    unique = {id(one): one.detach() for one in tensors if one.numel()}.values()
    plain = [one for one in unique if type(one) is torch.Tensor and one.layout == torch.strided and not one.is_meta]
    return [torch.view_as_real(one) if one.is_complex() else one for one in plain]


def _layout(tensors: Iterable[Tensor]) -> float:
    """Return a digest of all types and shapes that fits a float exactly."""
    text = " ".join(f"{one.dtype}{tuple(one.shape)}" for one in tensors)
    return float(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "little"))


def with_parts(values: Iterable[Any], depth: int = 2) -> Iterator[Any]:
    """Yield values, and the parts of those that have a state_dict."""
    for value in values:
        yield value
        if not depth or callable(getattr(value, "parameters", None)):
            continue
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
        if inside is None and hasattr(value, "state_dict") and not hasattr(value, "param_groups"):
            inside = vars(value).values() if hasattr(value, "__dict__") else ()
        wrapped = getattr(value, "optimizer", None)  # as of Accelerate
        yield from with_parts([*(inside or ()), *([] if wrapped is None else [wrapped])], depth - 1)


# Sharded models: a state is whole on every worker, so that each of them can go on alone.

_SHARDS: Final = frozenset({"FullyShardedDataParallel", "DTensor", "ZeroRedundancyOptimizer", "DeepSpeedEngine"})

_WHOLE: Final = (
    "divide a model by fully_shard, or an optimizer by ZeroRedundancyOptimizer, in a ShardedTraining, or train all "
    "of it with state.parallel(); with --backend process a script writes its shards itself when SIGTERM comes"
)


def refuse_sharded(values: Iterable[Any]) -> None:
    """Raise BadScript if a model or optimizer is divided among workers, which cannot be resized while it trains."""
    for value in with_parts(one for one in values if not getattr(one, "resharded", False)):
        inside = [*value.modules(), *value.parameters()] if callable(getattr(value, "modules", None)) else []
        for one in [value, *inside]:
            if shards := _SHARDS.intersection(kind.__name__ for kind in type(one).__mro__):
                what = f"a {type(value).__name__} is divided among the workers ({', '.join(shards)})"
                raise BadScript(f"{what}: each of a State's values must be whole", where="State", fix=_WHOLE)
