"""State trees: a state as plain values with named placeholders, and the tensors of these names.

Values may be nested dicts, lists, tuples, numbers, strings and tensors. The plain part has a JSON form, so a state is
sent and stored without pickle.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bftrain_elastic.errors import BadCommit, BadScript
from bftrain_elastic.worker.lazy_torch import torch

_COPY_SHARE: Final = 0.25  # maximum share of the GPU's free memory for a copy; training needs the rest
_DIGEST_BYTES: Final = 7  # the number and its negative must fit into 64 bits
_SCALARS: Final = (int, float, str, bool, type(None))
_json: Final = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would make a new encoder each time
Tensor = Any  # torch is imported only where a script uses it


@dataclass(frozen=True, slots=True)
class StateTree:
    """``plain`` is the JSON of everything except the tensors, with their names as placeholders."""

    plain: str
    tensors: Mapping[Any, Tensor]

    def unfolded(self) -> Any:  # noqa: ANN401 - any folded value
        """Return the value again; its tensors are shared, not copied."""
        return _unfold(json.loads(self.plain), self.tensors)

    @property
    def size(self) -> int:
        """The bytes of the tensors."""
        return sum(one.nbytes for one in self.tensors.values())

    @property
    def on_cpu(self) -> bool:
        """Whether all tensors are in main memory."""
        return all(one.device.type == "cpu" for one in self.tensors.values())


def fold(value: object) -> StateTree:
    """Split a value into its plain part and its tensors."""
    tensors: dict[Any, Tensor] = {}
    return StateTree(_json(_fold(value, tensors, "state")), tensors)


@dataclass(slots=True)
class NamedValues:
    """Named values, folded one by one: all items of a dict, or its first few."""

    names: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    tensors: dict[Any, Tensor] = field(default_factory=dict)

    def add(self, name: str, value: object, largest_bytes: float = math.inf) -> None:
        """Fold one more value; with ``largest_bytes``, skip it if it has a larger tensor, or one on a GPU."""
        tensors: dict[Any, Tensor] = {}
        text = _json([name, _fold(value, tensors, f"state[{name!r}]")])
        if largest_bytes == math.inf or all(
            one.device.type == "cpu" and one.nbytes <= largest_bytes for one in tensors.values()
        ):
            self.names.append(name)
            self.texts.append(text)
            self.tensors.update(tensors)

    def copy(self) -> NamedValues:
        """Return a copy to which more values can be added."""
        return NamedValues(list(self.names), list(self.texts), dict(self.tensors))

    def tree(self) -> StateTree:
        """Return the tree of a dict of these values."""
        return StateTree(f'["dict",[{",".join(self.texts)}]]', self.tensors)

    def digest(self) -> int:
        """Return a hash of the values. Tensors must be on the CPU."""
        summary = hashlib.blake2b(",".join(self.texts).encode(), digest_size=_DIGEST_BYTES)
        for tensor in self.tensors.values():
            if tensor.numel():
                flat = as_bytes(tensor)
                summary.update(ctypes.string_at(flat.data_ptr(), flat.numel()))
        return int.from_bytes(summary.digest(), "little")


def _fold(value: object, tensors: dict[Any, Tensor], where: str) -> list[Any]:
    if isinstance(value, _SCALARS):
        return ["is", value]
    torch = sys.modules.get("torch")  # no tensors exist if torch is not imported
    if torch is not None and isinstance(value, torch.Tensor):
        tensors[where] = value.detach()
        return ["tensor", where]
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


def _unfold(node: list[Any], tensors: Mapping[Any, Tensor]) -> Any:  # noqa: ANN401 - any folded value
    match node:
        case ["is", value]:
            return value
        case ["tensor", str() | int() as name]:  # states of earlier versions have numbers
            return tensors[name]
        case ["dict", list() as pairs]:
            return {key: _unfold(one, tensors) for key, one in pairs}
        case ["list", list() as items]:
            return [_unfold(one, tensors) for one in items]
        case ["tuple", list() as items]:
            return tuple(_unfold(one, tensors) for one in items)
    raise BadCommit("is damaged: it contains unknown entries")


@dataclass(frozen=True, slots=True)
class TreeShape:
    """Shape, type and device of a tensor."""

    dtype: str  # name in torch.<dtype>
    sizes: tuple[int, ...]
    device: str  # its kind: "cpu", "cuda"

    @property
    def here(self) -> str:
        """The kind of device for this tensor on this machine: the CPU if the kind is missing."""
        return self.device if self.device != "cuda" or torch.cuda.is_available() else "cpu"

    @classmethod
    def of(cls, tensor: Tensor) -> TreeShape:
        """Return the shape, type and device of a tensor."""
        return cls(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tensor.device.type)

    def empty(self) -> Tensor:
        """Return an uninitialised tensor of this shape."""
        return torch.empty(self.sizes, dtype=getattr(torch, self.dtype), device=self.here)


def shapes_of(tree: StateTree) -> list[list[Any]]:
    """Return type, shape, device and name of each tensor, as JSON values."""
    shapes = {name: TreeShape.of(one) for name, one in tree.tensors.items()}
    return [[shape.dtype, list(shape.sizes), shape.device, name] for name, shape in shapes.items()]


def read_shapes(shapes: list[list[Any]]) -> dict[Any, TreeShape]:
    """Return the shapes of tensors by their names; those of earlier versions are numbered."""
    return {
        name[0] if name else number: TreeShape(dtype, tuple(sizes), device)
        for number, (dtype, sizes, device, *name) in enumerate(shapes)
    }


def as_bytes(tensor: Tensor) -> Tensor:
    """View a tensor as a row of bytes."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def copied(tree: StateTree, into: StateTree | None) -> StateTree:
    """Copy a tree; ``into`` is an older copy with reusable memory.

    GPU tensors are copied on the GPU if that leaves room for training, otherwise to main memory.
    """
    if not tree.tensors:
        return tree
    with torch.no_grad():
        if into is None or not alike(into, tree):
            on_host = too_large(tree.tensors.values())
            return StateTree(tree.plain, {name: _twin(one, on_host=on_host) for name, one in tree.tensors.items()})
        for name, one in tree.tensors.items():
            into.tensors[name].copy_(one)
        return StateTree(tree.plain, into.tensors)


def put_back(tree: StateTree, current: StateTree) -> StateTree | None:
    """Copy ``tree`` into the tensors of ``current``; return the result, or ``None`` if they are not alike.

    This needs no extra GPU memory, which may be full.
    """
    if not alike(tree, current):
        return None
    if tree.tensors:
        with torch.no_grad():
            for name, theirs in tree.tensors.items():
                own = current.tensors[name]
                if (own.data_ptr(), own.stride()) != (theirs.data_ptr(), theirs.stride()):  # else received in place
                    own.copy_(theirs)
    return StateTree(tree.plain, current.tensors)


def alike(one: StateTree, other: StateTree) -> bool:
    """Return whether two trees have tensors of the same names, types and shapes."""
    first, second = ({name: (each.dtype, each.shape) for name, each in tree.tensors.items()} for tree in (one, other))
    return first == second


def _twin(tensor: Tensor, *, on_host: bool) -> Tensor:
    if not (on_host and tensor.device.type == "cuda"):
        return tensor.clone()
    # Pinned memory: the GPU writes there directly
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)


def too_large(tensors: Collection[Tensor]) -> bool:
    """Return whether a copy of the GPU tensors would take more free memory than the training can spare."""
    needed = sum(one.numel() * one.element_size() for one in tensors if one.device.type == "cuda")
    if not needed:
        return False
    free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return bool(needed > _COPY_SHARE * free)


class LargeValues:
    """Tracks which large values of one worker changed since its last commit, or since its group formed.

    Large values are not compared between workers: a new tensor or a write counts as a change. If workers changed
    different ones, rank 0 sends all of these.
    """

    def __init__(self) -> None:
        self._marks: dict[str, object] = {}
        self._trees: dict[str, StateTree] = {}
        self.changed: tuple[str, ...] = ()

    def update(self, values: Mapping[str, Any]) -> None:
        """Find which values changed since the last call."""
        trees = {name: fold(value) for name, value in values.items()}
        marks = {name: _mark(tree) for name, tree in trees.items()}
        self.changed = tuple(name for name in sorted(marks) if marks[name] != self._marks.get(name))
        # A mark contains an address, so its tensor must live until the next call: a new tensor could get its memory
        self._marks, self._trees = marks, trees

    @property
    def digest(self) -> int:
        """A hash of the changed values' names."""
        text = json.dumps(self.changed).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest(), "little")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the large values."""
        return tuple(self._marks)

    def tree(self, names: Iterable[str]) -> StateTree:
        """Return the values of these names."""
        return _tree_of({name: self._trees[name].unfolded() for name in names}, names)


def taken(tree: StateTree, present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of rank 0; existing tensors are written in place, as they may be in use."""
    names = [name for name, _ in json.loads(tree.plain)[1]]
    current = _tree_of(present, names) if all(name in present for name in names) else None
    return dict(((put_back(tree, current) if current else None) or tree).unfolded())


def _tree_of(values: Mapping[str, Any], names: Iterable[str]) -> StateTree:
    named = NamedValues()
    for name in sorted(names):
        named.add(name, values[name])
    return named.tree()


def _mark(tree: StateTree) -> object:
    """Return the identity and version of a value; does not read the numbers of its tensors."""
    tensors = tree.tensors.values()
    return tree.plain, [(one.data_ptr(), version_of(one), str(one.dtype), tuple(one.shape)) for one in tensors]


def version_of(tensor: Tensor) -> int:
    """Return how often a tensor was written to."""
    try:
        return int(tensor._version)  # noqa: SLF001 - there is no public way
    except RuntimeError:  # inference-mode tensors have no version
        return 0
