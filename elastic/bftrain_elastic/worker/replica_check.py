"""Replicas: checks whether all members of a group train the same model. A state compares them at some commits.

Each member projects a sample of each parameter onto one number. Replicas with unexchanged gradients or different
initial weights differ in all elements of a tensor, so a sample is enough.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from bftrain_elastic.errors import BadScript
from bftrain_elastic.wire.worker_messages import ReplicasDiffer
from bftrain_elastic.worker.lazy_torch import torch
from bftrain_elastic.worker.state_values import StateInternals

_EVERY: Final = 500  # commits between comparisons in an old group; a new one compares at 2, 4, 8, ... commits
_SAMPLE: Final = 4096  # elements of a tensor that are compared
_ROUNDINGS: Final = 8.0  # different CPUs may round differently: tolerance in roundings, times the root of the commits
_LARGEST_TOLERANCE: Final = 1e-3  # relative, for each tensor


def compare_replicas(
    own: StateInternals, values: Iterable[Any], gathered: Callable[[Sequence[float]], list[list[float]]]
) -> None:
    """Report the first member with parameters that differ from rank 0's; all members call this at each commit.

    ``gathered`` returns the numbers of each member.
    """
    commits, place = own.group.commits, own.group.place
    is_due = commits > 1 and (commits & (commits - 1) == 0 if commits < _EVERY else commits % _EVERY == 0)
    if place.workers == 1 or not is_due:
        return
    layout, checksum, tolerance = _checksum(values, commits)
    rows = gathered([layout, checksum])
    differs = [abs(row[1] - rows[0][1]) > tolerance or row[0] != rows[0][0] for row in rows]
    if place.rank == 0 and True in differs:
        own.progress.report(ReplicasDiffer(own.progress.step, differs.index(True)))


def _checksum(values: Iterable[Any], commits: int) -> tuple[float, float, float]:
    """Return a digest of the parameters' shapes, a checksum of their values, and the checksum's tolerance."""
    found = [one for value in with_parts(values) for one in _parameters(value) if one.numel()]
    tensors = list({id(one): one.detach() for one in found}.values())
    # Divided tensors cannot be compared
    tensors = [one for one in tensors if type(one) is torch.Tensor and one.layout == torch.strided and not one.is_meta]
    checksum, tolerance = 0.0, 0.0
    for tensor in tensors:
        real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        stride = math.ceil(real.numel() / _SAMPLE)
        sample = real.reshape(-1)[commits % stride :: stride].to("cpu", torch.float64).nan_to_num()
        size = float(sample.norm()) or 1.0
        checksum += float(sample @ torch.cos(torch.arange(len(sample), dtype=torch.float64))) / size + math.log(size)
        rounding = torch.finfo(real.dtype).eps if real.dtype.is_floating_point else 0.0
        tolerance += min(_ROUNDINGS * rounding * math.sqrt(commits), _LARGEST_TOLERANCE)
    text = " ".join(f"{one.dtype}{tuple(one.shape)}" for one in tensors)
    return float(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "little")), checksum, tolerance


def _parameters(value: Any) -> Iterator[Any]:  # noqa: ANN401 - a model, an optimizer, or any other value
    if callable(getattr(value, "parameters", None)):
        yield from value.parameters()
    for group in getattr(value, "param_groups", ()):
        yield from group["params"]


def with_parts(values: Iterable[Any], depth: int = 2) -> Iterator[Any]:
    """Yield values, and the parts of values with a state_dict."""
    for value in values:
        yield value
        if not depth or callable(getattr(value, "parameters", None)):
            continue
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
        if inside is None and hasattr(value, "state_dict") and not hasattr(value, "param_groups"):
            inside = vars(value).values() if hasattr(value, "__dict__") else ()
        wrapped = getattr(value, "optimizer", None)  # Accelerate's wrapper
        yield from with_parts([*(inside or ()), *([] if wrapped is None else [wrapped])], depth - 1)


# Sharded models: a state is whole on every worker, so each worker could continue alone.

_SHARDS: Final = frozenset({"FullyShardedDataParallel", "DTensor", "ZeroRedundancyOptimizer", "DeepSpeedEngine"})

_WHOLE: Final = (
    "divide a model by fully_shard, or an optimizer by ZeroRedundancyOptimizer, in a ShardedTraining, or train all "
    "of it with state.parallel(); with --launcher process a script writes its shards itself when SIGTERM comes"
)


def refuse_sharded(values: Iterable[Any]) -> None:
    """Raise BadScript if a model or optimizer is divided among workers, which cannot be resized while it trains."""
    for value in with_parts(one for one in values if not getattr(one, "resharded", False)):
        inside = [*value.modules(), *value.parameters()] if callable(getattr(value, "modules", None)) else []
        for one in [value, *inside]:
            if shards := _SHARDS.intersection(kind.__name__ for kind in type(one).__mro__):
                what = f"a {type(value).__name__} is divided among the workers ({', '.join(shards)})"
                raise BadScript(f"{what}: each of a State's values must be whole", where="State", fix=_WHOLE)
