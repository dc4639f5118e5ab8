"""Sends the state from rank 0 to the members that lack it: broadcasts pieces directly into place.

A time limit applies to each piece, not to the whole transfer.
"""

from __future__ import annotations

import ctypes
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple

from bftrain_elastic.worker.checkpoint_file import fits_in_memory
from bftrain_elastic.worker.lazy_torch import dist, torch
from bftrain_elastic.worker.process_groups import GroupRank
from bftrain_elastic.worker.state_tree import StateTree, Tensor, TreeShape, as_bytes, read_shapes, shapes_of
from bftrain_elastic.worker.state_values import CopyInPieces, StateBase, capture, inner, restore

_PIECE_BYTES: Final = 8 * 1024 * 1024
_LEAST_PIECE_BYTES: Final = 1024 * 1024
_SMALL_BYTES: Final = 256 * 1024  # smaller tensors travel together
_WINDOW: Final = 4  # number of pieces in flight
_PIECE_TIMEOUT: Final = timedelta(seconds=20)  # timeout for a piece
_DESCRIPTION: Final = "bftrain/state"
_DESCRIPTION_TIMEOUT: Final = timedelta(seconds=3)

OnPart = Callable[[int, int, int], None]


class TensorPart(NamedTuple):
    """Bytes of a tensor."""

    number: int  # index of the tensor in the tree
    start: int
    stop: int


def offer(place: GroupRank, tree: StateTree | None, into: StateTree | None = None) -> StateTree:
    """Announce the structure of rank 0's tree to all members, before :func:`move`; called by all members.

    Returns the member's own tree if it has one, otherwise an empty tree, in tensors of ``into`` where these fit.
    """
    header = broadcast_bytes(described(tree) if place.rank == 0 and tree is not None else b"")
    return receivable(header, into) if tree is None else tree


def described(tree: StateTree) -> bytes:
    """Return the plain part of a tree, and the shapes of its tensors."""
    return json.dumps([tree.plain, shapes_of(tree)], separators=(",", ":")).encode()


def receivable(description: bytes, into: StateTree | None) -> StateTree:
    """Return a tree as described, in tensors of ``into`` where these fit, otherwise in new tensors."""
    plain, shapes = json.loads(description)
    here = into.tensors if into else {}
    return StateTree(plain, {name: _room(shape, here.get(name)) for name, shape in read_shapes(shapes).items()})


def describe(store: Any, tree: StateTree) -> None:  # noqa: ANN401 - torch.distributed.Store
    """Store the structure of the state, so that new workers can prepare memory for it."""
    store.set(_DESCRIPTION, described(tree))


def prepare(state: StateBase, peer: str) -> None:
    """Allocate memory for the state of the worker at ``peer``, and for a copy, while the peer trains.

    Reuses tensors that the script has created. Allocating pages takes the kernel longer than the transfer itself.
    """
    host, _, port = peer.rpartition(":")
    if host:
        with suppress(RuntimeError, OSError):  # the peer is gone or has no description: memory is allocated later
            store = dist.TCPStore(
                host, int(port), is_master=False, wait_for_workers=False, timeout=_DESCRIPTION_TIMEOUT
            )
            if store.check([_DESCRIPTION]):
                _make_room(state, store.get(_DESCRIPTION))


def _make_room(state: StateBase, description: bytes) -> None:
    own, mine = inner(state), capture(state)
    tree = receivable(description, mine)
    present = {id(one) for one in mine.tensors.values()}
    if tree.on_cpu and fits_in_memory(2 * tree.size):
        with torch.no_grad():
            for one in tree.tensors.values():
                if id(one) not in present:
                    one.zero_()
            spare = {name: torch.empty_like(one).zero_() for name, one in tree.tensors.items()}
            own.copies.last = StateTree(tree.plain, spare)
        own.copies.prepared = tree


def _room(shape: TreeShape, present: Tensor | None) -> Tensor:
    if present is None or not present.is_contiguous():
        return shape.empty()
    there = TreeShape.of(present)
    return (
        present if (there.dtype, there.sizes, there.device) == (shape.dtype, shape.sizes, shape.here) else shape.empty()
    )


def move(place: GroupRank, tree: StateTree, sources: Sequence[int] = (0,), on_part: OnPart | None = None) -> None:
    """Fill the trees of members outside ``sources``, which all have the same tree; called by all members.

    ``on_part`` is called with each part of a tensor after it was received, and on sources after it was sent.
    """
    lacking = [rank for rank in range(place.workers) if rank not in sources]
    if not lacking:
        return
    tensors, on_part = list(tree.tensors.values()), on_part or (lambda *_: None)
    # Members that have the tree and need not receive it
    others = tree.size > _LEAST_PIECE_BYTES and len(lacking) + 1 < place.workers
    group = dist.new_group([0, *lacking], backend="gloo") if others and tree.on_cpu else None
    pieces = _Pieces(tensors, receives=place.rank in lacking, group=group, on_part=on_part)
    with torch.no_grad():
        for piece in cut(tensors):
            if group is not None and place.rank and place.rank in sources:
                pieces.record(piece)
            else:
                pieces.send(piece, scratch=place.rank in sources and place.rank > 0)
        pieces.wait(0)


def cut(tensors: Sequence[Tensor]) -> Iterator[list[TensorPart]]:
    """Split tensors into pieces: a part of a large one, or several small ones of a device together."""
    together: list[TensorPart] = []
    for number in sorted(range(len(tensors)), key=lambda number: str(tensors[number].device.type)):
        size = tensors[number].nbytes
        other = together and tensors[together[0].number].device != tensors[number].device
        if other or sum(part.stop for part in together) >= _LEAST_PIECE_BYTES:
            yield together
            together = []
        if size >= _SMALL_BYTES:
            yield from ([TensorPart(number, at, min(at + _PIECE_BYTES, size))] for at in range(0, size, _PIECE_BYTES))
        elif size:
            together.append(TensorPart(number, 0, size))
    if together:
        yield together


class _Pieces:
    """Broadcasts the bytes of tensors in pieces, with several pieces in flight."""

    def __init__(self, tensors: Sequence[Tensor], *, receives: bool, group: Any, on_part: OnPart) -> None:  # noqa: ANN401 - torch.distributed.ProcessGroup
        self._tensors, self._receives, self._group, self._on_part = tensors, receives, group, on_part
        self._flat: tuple[int, Tensor] = (-1, None)  # the latest tensor: as bytes it may be a copy
        self._pending: deque[tuple[Any, Tensor, Sequence[TensorPart]]] = deque()

    def _bytes(self, part: TensorPart) -> Tensor:
        if self._flat[0] != part.number:
            self._flat = (part.number, as_bytes(self._tensors[part.number]))
        return self._flat[1][part.start : part.stop]

    def send(self, piece: Sequence[TensorPart], *, scratch: bool) -> None:
        """Start to broadcast a piece from rank 0; ``scratch``: this member has it, and drops the received bytes."""
        size, device = sum(part.stop - part.start for part in piece), self._tensors[piece[0].number].device
        if scratch or (self._receives and len(piece) > 1):
            data = torch.empty(size, dtype=torch.uint8, device=device)
        else:
            data = self._bytes(piece[0]) if len(piece) == 1 else torch.cat([self._bytes(part) for part in piece])
        self._pending.append((dist.broadcast(data, src=0, group=self._group, async_op=True), data, piece))
        self.wait(_WINDOW)

    def wait(self, most: int) -> None:
        """Wait until the number of pieces in flight is ``most`` or less."""
        while len(self._pending) > most:
            work, data, piece = self._pending.popleft()
            work.wait(_PIECE_TIMEOUT)
            if self._receives and len(piece) > 1:
                for part, found in zip(piece, data.split([part.stop for part in piece]), strict=True):
                    self._bytes(part).copy_(found)
            self.record(piece)

    def record(self, piece: Sequence[TensorPart]) -> None:
        """Record that a piece is in place."""
        for part in piece:
            self._on_part(*part)


def share_state(state: StateBase, sources: Sequence[int], *, fresh: bool) -> None:
    """Send the state of the ``sources`` to all members; a ``fresh`` member receives it in place."""
    own = inner(state)
    place = own.group.place
    has, mine = place.rank in sources, capture(state)
    tree = offer(place, mine if has else None, (own.copies.prepared or mine) if fresh else None)
    own.copies.prepared = None
    stale = own.copies.step != own.progress.step and not own.copies.recent
    copy = CopyInPieces(own, tree) if tree.on_cpu and (stale if has else fresh) else None
    own.copies.mixed = fresh and not has
    moved = 0

    def on_part(number: int, start: int, stop: int) -> None:
        nonlocal moved
        if copy:
            copy.take(number, start, stop)
        moved += stop - start
        own.progress.moved(place.generation, moved)

    move(place, tree, sources, on_part)
    if not has:
        restore(state, tree, ours=True)
    own.copies.mixed = False
    if copy:
        copy.finish()


def broadcast_bytes(data: bytes) -> bytes:
    """Return the bytes of rank 0; called by all members."""
    length = torch.tensor([len(data)], dtype=torch.int64)
    dist.broadcast(length, src=0)
    box = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(int(length), dtype=torch.uint8)
    dist.broadcast(box, src=0)
    return ctypes.string_at(box.data_ptr(), box.numel())
