"""Pieces of a model and its optimizer: a worker's part of each whole tensor, and packed copies.

A piece is a box within a whole tensor, given by its first index and its length in each dimension. So the pieces of
a group can be cut and joined to form the pieces of a group of another size.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from bftrain_elastic.errors import BadScript

_ALIGNMENT: Final = 64  # alignment of a piece in packed memory; suits every type
DIVIDED_FROM: Final = 4096  # elements of a replicated tensor above which each worker keeps only a part
# Plain numbers of an optimizer, kept as tensors
_NUMBERS: Final[Mapping[str, type]] = {"int": int, "float": float, "bool": bool}
ZERO: Final = "ZeroRedundancyOptimizer"
Untyped = Any  # a model, an optimizer, a tensor: torch is imported only where a script uses it


class TensorBox(NamedTuple):
    """A part of a tensor."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def numel(self) -> int:
        """The number of its elements."""
        return math.prod(self.sizes)

    def meet(self, other: TensorBox) -> TensorBox | None:
        """Return the intersection with another box; None if it is empty."""
        begin = tuple(map(max, self.offsets, other.offsets))
        ends = zip(self.offsets, self.sizes, other.offsets, other.sizes, strict=True)
        sizes = tuple(min(a + m, b + n) - at for at, (a, m, b, n) in zip(begin, ends, strict=True))
        return TensorBox(begin, sizes) if all(size > 0 for size in sizes) else None

    def cut(self, tensor: Untyped, around: TensorBox) -> Untyped:
        """Return the view of this box in a tensor that covers the box ``around``."""
        for dim, (start, begin, size) in enumerate(zip(self.offsets, around.offsets, self.sizes, strict=True)):
            tensor = tensor.narrow(dim, start - begin, size)
        return tensor


class ShardPiece(NamedTuple):
    """A piece in packed memory; a plain list in JSON."""

    name: str
    dtype: str
    shape: tuple[int, ...]  # shape of the whole tensor
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    at: int = 0  # offset of its first byte

    @classmethod
    def of(cls, found: Sequence[Any]) -> ShardPiece:
        """Return a piece from its JSON list."""
        name, dtype, shape, offsets, sizes, at = found
        return cls(name, dtype, tuple(shape), tuple(offsets), tuple(sizes), at)

    @property
    def box(self) -> TensorBox:
        """Its part of the whole tensor."""
        return TensorBox(self.offsets, self.sizes)

    @property
    def whole(self) -> int:
        """The number of elements of the whole tensor."""
        return math.prod(self.shape)


class LiveShard(NamedTuple):
    """A tensor in training on a worker, as a part of a whole tensor."""

    name: str
    tensor: Untyped  # the worker's own part
    shape: tuple[int, ...]
    box: TensorBox
    divided: bool  # divided among the workers; False: replicated


class PackedShards(NamedTuple):
    """Copies of pieces in one block of memory, sent and written with one operation."""

    pieces: Sequence[ShardPiece]
    data: Untyped  # bytes

    @classmethod
    def copy_of(cls, live: Sequence[LiveShard], room: Untyped = None) -> PackedShards:
        """Copy tensors, into ``room`` if it is large enough."""
        import torch

        kinds = [str(one.tensor.dtype).removeprefix("torch.") for one in live]
        pieces = [ShardPiece(one.name, kind, one.shape, *one.box) for one, kind in zip(live, kinds, strict=True)]
        packed = cls.empty(pieces, room, pin=any(one.tensor.device.type == "cuda" for one in live))
        with torch.no_grad():
            for number, one in enumerate(live):
                packed.tensor(number).copy_(one.tensor)
        return packed

    @classmethod
    def empty(cls, pieces: Sequence[ShardPiece], room: Untyped = None, *, pin: bool = False) -> PackedShards:
        """Return memory for pieces; reuses ``room`` if it is large enough."""
        import torch

        placed, size = [], 0
        for one in pieces:
            placed.append(one._replace(at=size))
            size += -(-nbytes(one) // _ALIGNMENT) * _ALIGNMENT
        if room is None or room.numel() < size:
            room = torch.empty(size, dtype=torch.uint8, pin_memory=pin)
        return cls(placed, room[:size])

    @classmethod
    def mapped(cls, pieces: Sequence[ShardPiece], path: str) -> PackedShards:
        """Return the pieces in a file, which are read when they are used."""
        import torch

        with open(path, "rb") as file:  # noqa: PTH123 - as a number is needed
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if pieces else b"\0"
        return cls(pieces, torch.frombuffer(data, dtype=torch.uint8))

    def tensor(self, number: int) -> Untyped:
        """Return the view of one piece."""
        import torch

        piece = self.pieces[number]
        return self.data[piece.at : piece.at + nbytes(piece)].view(getattr(torch, piece.dtype)).view(piece.sizes)


def nbytes(piece: ShardPiece) -> int:
    """Return the size of a piece in bytes."""
    import torch

    return int(math.prod(piece.sizes) * getattr(torch, piece.dtype).itemsize)


def live_shards(prefix: str, model: Untyped, optimizer: Untyped) -> list[LiveShard]:
    """Return this worker's tensors of a model and its optimizer: divided or replicated."""
    found, names = [], {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if hasattr(tensor, "data_ptr") and id(tensor) not in names:  # a tied parameter has two names
            names[id(tensor)] = name
            found.append(_live(f"{prefix}/model/{name}", tensor))
    by_zero = is_zero(optimizer)
    for number, parameter in enumerate(_parameters(optimizer)):
        name = names.get(id(parameter), f"#{number}")
        for key, value in local_optimizer(optimizer).state.get(parameter, {}).items():
            where = f"{prefix}/optimizer/{name}/{key}"
            found.extend(one._replace(divided=one.divided or by_zero) for one in _live_values(where, value, parameter))
    return found


def _live_values(where: str, value: Untyped, parameter: Untyped) -> Iterator[LiveShard]:
    import torch

    if isinstance(value, torch.Tensor):
        if hasattr(value, "full_tensor") and value.shape != parameter.shape:
            what = f"its optimizer divides {where} otherwise than the parameter"
            raise BadScript(what, where="ShardedTraining", fix="use an optimizer whose values have its shape")
        yield _live(where, value)
    elif type(value).__name__ in _NUMBERS:
        yield _live(f"{where}#{type(value).__name__}", torch.tensor(value))
    elif value is not None:
        what = f"its optimizer keeps a {type(value).__name__} in {where}"
        raise BadScript(what, where="ShardedTraining", fix="use an optimizer that keeps tensors and numbers")


def _live(name: str, tensor: Untyped) -> LiveShard:
    shape = tuple(tensor.shape)
    if not hasattr(tensor, "to_local"):
        return LiveShard(name, tensor.detach(), shape, TensorBox((0,) * len(shape), shape), divided=False)
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    divided = any(not one.is_replicate() for one in tensor.placements)
    return LiveShard(name, tensor.detach().to_local(), shape, TensorBox(tuple(offsets), tuple(sizes)), divided)


def own_share(live: Iterable[LiveShard], rank: int, workers: int) -> list[LiveShard]:
    """Return the part of its tensors that a worker keeps: one slice of each large replicated tensor."""
    kept = []
    for one in live:
        rows = one.shape[0] if one.shape else 0
        if one.divided or workers == 1 or one.tensor.numel() < DIVIDED_FROM or rows < workers:
            kept.append(one)
            continue
        begin, end = rank * rows // workers, (rank + 1) * rows // workers
        box = TensorBox((begin, *one.box.offsets[1:]), (end - begin, *one.box.sizes[1:]))
        kept.append(one._replace(tensor=box.cut(one.tensor, one.box), box=box))
    return [one for one in kept if one.box.numel]


def is_zero(optimizer: Untyped) -> bool:
    """Return whether an optimizer divides its values by parameters."""
    return any(kind.__name__ == ZERO for kind in type(optimizer).__mro__)


def local_optimizer(optimizer: Untyped) -> Untyped:
    """Return the optimizer of this worker's parameters."""
    return optimizer.optim if is_zero(optimizer) else optimizer


def _parameters(optimizer: Untyped) -> list[Untyped]:
    return [one for group in optimizer.param_groups for one in group["params"]] if optimizer is not None else []


def make_optimizer_state(prefix: str, model: Untyped, optimizer: Untyped, whole: Mapping[str, ShardPiece]) -> None:
    """Create the values of an optimizer for this worker's parameters; they are filled later."""
    import torch

    local = local_optimizer(optimizer)
    mine = {id(one) for one in _parameters(local)}
    names = {id(one): name for name, one in reversed(model.state_dict(keep_vars=True).items())}
    keys: dict[str, list[tuple[str, ShardPiece]]] = {}
    begin = f"{prefix}/optimizer/"
    for piece in whole.values():
        if piece.name.startswith(begin):
            name, _, key = piece.name.removeprefix(begin).rpartition("/")
            keys.setdefault(name, []).append((key, piece))
    for number, parameter in enumerate(_parameters(optimizer)):
        if id(parameter) not in mine:
            continue
        for key, piece in keys.get(names.get(id(parameter), f"#{number}"), ()):
            dtype = getattr(torch, piece.dtype)
            if piece.shape == tuple(parameter.shape) and piece.shape:
                local.state[parameter][key] = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
            else:  # a step count is on the CPU, unless the optimizer wants it elsewhere
                fused = any(group.get("fused") or group.get("capturable") for group in local.param_groups)
                device = parameter.device if piece.shape or (fused and "#" not in key) else "cpu"
                local.state[parameter][key] = torch.zeros(piece.shape, dtype=dtype, device=device)


def restore_numbers(optimizer: Untyped) -> None:
    """Convert values that were numbers back, after they were filled as tensors."""
    for state in local_optimizer(optimizer).state.values():
        for key in [one for one in state if "#" in one]:
            name, _, kind = key.partition("#")
            state[name] = _NUMBERS[kind](state.pop(key).item())


def return_memory() -> None:
    """Return free memory to the machine, which the C library keeps."""
    with suppress(AttributeError, OSError):  # not every C library can
        ctypes.CDLL(None).malloc_trim(0)
