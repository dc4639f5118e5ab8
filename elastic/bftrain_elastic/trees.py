"""Trees: a state as plain values with numbered holes, and the tensors that go into the holes.

Values may be nested dicts, lists, tuples, numbers, strings and tensors. The plain part has a JSON form, so a state
travels and is kept without pickle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bftrain_elastic.errors import BadCommit, BadScript

Tensor = Any  # torch is imported only where a script uses it


@dataclass(frozen=True, slots=True)
class Tree:
    """``plain`` is the JSON of everything but the tensors, which stand beside it in the order of their holes."""

    plain: str
    tensors: Sequence[Tensor]

    def unfolded(self) -> Any:  # noqa: ANN401 - whatever was folded
        """Give the value again; its tensors are ours, not copies."""
        return _unfold(json.loads(self.plain), self.tensors)


def fold(value: object) -> Tree:
    """Take a value apart."""
    tensors: list[Tensor] = []
    return Tree(json.dumps(_fold(value, tensors, "state"), separators=(",", ":")), tensors)


def _fold(value: object, tensors: list[Tensor], where: str) -> list[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return ["tensor", len(tensors) - 1]
    if value is None or isinstance(value, bool | int | float | str):
        return ["is", value]
    if isinstance(value, Mapping):
        if not all(isinstance(key, str | int) for key in value):
            raise BadScript("has keys that are neither strings nor whole numbers", where=where)
        return ["dict", [[key, _fold(one, tensors, f"{where}[{key!r}]")] for key, one in value.items()]]
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, [_fold(one, tensors, f"{where}[{place}]") for place, one in enumerate(value)]]
    raise BadScript(
        f"is of type {type(value).__name__}, which cannot be kept",
        where=where,
        fix="keep numbers, strings, lists, dicts and tensors, or an object with state_dict and load_state_dict",
    )


def _unfold(node: list[Any], tensors: Sequence[Tensor]) -> Any:  # noqa: ANN401 - whatever was folded
    match node:
        case ["is", value]:
            return value
        case ["tensor", int() as place]:
            return tensors[place]
        case ["dict", list() as pairs]:
            return {key: _unfold(one, tensors) for key, one in pairs}
        case ["list", list() as items]:
            return [_unfold(one, tensors) for one in items]
        case ["tuple", list() as items]:
            return tuple(_unfold(one, tensors) for one in items)
    raise BadCommit("is damaged: it holds what no state holds")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a tensor looks like without its numbers."""

    dtype: str  # as in torch.<dtype>
    sizes: tuple[int, ...]
    device: str  # its kind: "cpu", "cuda"

    @classmethod
    def of(cls, tensor: Tensor) -> Shape:
        """Describe a tensor."""
        return cls(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tensor.device.type)

    def empty(self) -> Tensor:
        """Make room for such a tensor, on this machine's device of that kind, or on the CPU if it has none."""
        import torch

        kind = self.device if self.device != "cuda" or torch.cuda.is_available() else "cpu"
        return torch.empty(self.sizes, dtype=getattr(torch, self.dtype), device=kind)


def as_bytes(tensor: Tensor) -> Tensor:
    """View a tensor as a row of bytes."""
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8)


def copied(tree: Tree, into: Tree | None) -> Tree:
    """Copy a tree; ``into`` is an older copy whose memory may be used."""
    import torch

    with torch.no_grad():
        fits = into is not None and [Shape.of(one) for one in into.tensors] == [Shape.of(one) for one in tree.tensors]
        if into is None or not fits:
            return Tree(tree.plain, [one.clone() for one in tree.tensors])
        for mine, theirs in zip(into.tensors, tree.tensors, strict=True):
            mine.copy_(theirs)
        return Tree(tree.plain, into.tensors)
