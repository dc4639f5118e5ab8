"""Sends the state from the members that have it to those that lack it: in one pass, straight into place.

CPU tensors are sent in pieces along a chain: each piece goes from one of the sources to a first receiver, which
forwards it while the next piece arrives. The first receiver changes with each piece, so that all links are in use. A
time limit applies to each piece, not to the whole transfer. GPU tensors are broadcast piece by piece, which NCCL does
fast.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple

from bftrain_elastic.worker.background_save import fits_in_memory
from bftrain_elastic.worker.process_groups import GroupRank
from bftrain_elastic.worker.shard_keeper import StateBase
from bftrain_elastic.worker.state_tree import StateTree, Tensor, TreeShape, as_bytes, places_of, size_of
from bftrain_elastic.worker.state_values import CopyInPieces, StateInternals, capture, has_recent_copy, inner, restore

_PIECE_BYTES: Final = 8 * 1024 * 1024
_LEAST_PIECE_BYTES: Final = 1024 * 1024  # also what is small enough to be broadcast at once
_SMALL_BYTES: Final = 256 * 1024  # tensors smaller than that travel together
_PIECES_EACH: Final = 4  # at least for each member that lacks the state, so that all are busy most of the time
_WINDOW: Final = 6  # pieces that are on their way to a member at once
_STANDSTILL: Final = timedelta(seconds=20)  # how long a piece may take from one member to the next,
_DESCRIPTION: Final = "bftrain/state"
_LOOKING: Final = timedelta(seconds=3)
_REPORT_S: Final = 1.0
_MOST_STEPS: Final = 6  # and as many times as long from the first to the last, up to this

OnPart = Callable[[int, int, int], None]


class TensorPart(NamedTuple):
    """Bytes of a tensor."""

    number: int  # of the tensor in the tree
    start: int
    stop: int


def offer(place: GroupRank, tree: StateTree | None, into: StateTree | None = None) -> StateTree:
    """Announce the structure of rank 0's tree to all members, before :func:`move`; called by all members.

    Return the own tree on members that have one, and an empty one on the others, in tensors of ``into`` where these
    fit.
    """
    header = broadcast_bytes(described(tree) if place.rank == 0 and tree is not None else b"")
    return receivable(header, into) if tree is None else tree


def described(tree: StateTree) -> bytes:
    """Return the plain part of a tree, and the shapes of its tensors."""
    shapes = [[shape.dtype, list(shape.sizes), shape.device] for shape in map(TreeShape.of, tree.tensors)]
    return json.dumps([tree.plain, shapes], separators=(",", ":")).encode()


def receivable(description: bytes, into: StateTree | None) -> StateTree:
    """Return a tree as described, in tensors of ``into`` where these fit, otherwise in new ones."""
    plain, shapes = json.loads(description)
    here = dict(zip(places_of(into.plain), into.tensors, strict=True)) if into else {}
    where = places_of(plain) if here else [()] * len(shapes)
    wanted = [TreeShape(dtype, tuple(sizes), device) for dtype, sizes, device in shapes]
    return StateTree(plain, [_room(shape, here.get(at)) for shape, at in zip(wanted, where, strict=True)])


def describe(store: Any, tree: StateTree) -> None:  # noqa: ANN401 - torch.distributed.Store
    """Store the structure of the state, so that new workers can prepare memory for it."""
    store.set(_DESCRIPTION, described(tree))


def prepare(state: StateBase, peer: str) -> None:
    """Allocate memory for the state that the worker at ``peer`` has described, and for a copy, while that one trains.

    Tensors that the script has created are used. Allocating pages takes the kernel longer than the transfer itself.
    """
    host, _, port = peer.rpartition(":")
    if host:
        import torch.distributed as dist

        with suppress(RuntimeError, OSError):  # it is gone, or has described nothing: then room is made when it is due
            store = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=_LOOKING)
            if store.check([_DESCRIPTION]):
                _make_room(state, store.get(_DESCRIPTION))


def _make_room(state: StateBase, description: bytes) -> None:
    import torch

    own, mine = inner(state), capture(state)
    tree = receivable(description, mine)
    present = {id(one) for one in mine.tensors}
    if all(one.device.type == "cpu" for one in tree.tensors) and fits_in_memory(2 * size_of(tree)):
        with torch.no_grad():
            for one in tree.tensors:
                if id(one) not in present:
                    one.zero_()
            own.copy = StateTree(tree.plain, [torch.empty_like(one).zero_() for one in tree.tensors])
        own.prepared = tree


def _room(shape: TreeShape, present: Tensor | None) -> Tensor:
    if present is None or not present.is_contiguous():
        return shape.empty()
    there = TreeShape.of(present)
    return (
        present if (there.dtype, there.sizes, there.device) == (shape.dtype, shape.sizes, shape.here) else shape.empty()
    )


def move(place: GroupRank, tree: StateTree, sources: Sequence[int] = (0,), on_part: OnPart | None = None) -> None:
    """Fill the tree of each member that is not in ``sources``, which all hold the same; called by all members.

    ``on_part`` is called with each part of a tensor after it was received, and on sources after it was sent.
    """
    lacking = [rank for rank in range(place.workers) if rank not in sources]
    if not lacking:
        return
    parcel = _Parcel(tree.tensors, on_part or (lambda *_: None))
    for device in sorted({one.device.type for one in tree.tensors}):
        sizes = [one.nbytes if one.device.type == device else 0 for one in tree.tensors]
        fits = sum(sizes) // (_PIECES_EACH * len(lacking))
        pieces = list(cut(sizes, max(_LEAST_PIECE_BYTES, min(_PIECE_BYTES, fits))))
        if device == "cpu" and sum(sizes) > _LEAST_PIECE_BYTES:
            _pass_on(place.rank, parcel, pieces, sources, lacking)
        else:
            for piece in pieces:
                _broadcast(place.rank, parcel, piece, sources)


def cut(sizes: Sequence[int], piece_bytes: int) -> Iterator[list[TensorPart]]:
    """Split tensors of these sizes into pieces: a part of a large one, or several small ones together."""
    together: list[TensorPart] = []
    for number, size in enumerate(sizes):
        if size >= _SMALL_BYTES:
            yield from ([TensorPart(number, at, min(at + piece_bytes, size))] for at in range(0, size, piece_bytes))
        elif size:
            together.append(TensorPart(number, 0, size))
            if sum(part.stop for part in together) >= _LEAST_PIECE_BYTES:
                yield together
                together = []
    if together:
        yield together


class _Reporter:
    """Reports once a second how many bytes have moved, so that the manager does not take the transfer for a stall."""

    def __init__(self, own: StateInternals, on_part: OnPart | None) -> None:
        self._own, self._on_part = own, on_part
        self._moved, self._reported_at = 0, time.monotonic()

    def __call__(self, number: int, start: int, stop: int) -> None:
        if self._on_part is not None:
            self._on_part(number, start, stop)
        self._moved += stop - start
        now = time.monotonic()
        if now - self._reported_at > _REPORT_S:
            self._reported_at = now
            self._own.report({"type": "moving", "generation": self._own.group.place.generation, "moved": self._moved})


class _Parcel:
    """The bytes of tensors in the form in which they are sent and received."""

    def __init__(self, tensors: Sequence[Tensor], on_part: OnPart) -> None:
        self._tensors = tensors
        self._on_part = on_part
        self._flat: tuple[int, Tensor] = (-1, None)  # the last one: as bytes it may be a copy

    def _bytes(self, part: TensorPart) -> Tensor:
        if self._flat[0] != part.number:
            self._flat = (part.number, as_bytes(self._tensors[part.number]))
        return self._flat[1][part.start : part.stop]

    def packed(self, piece: Sequence[TensorPart]) -> Tensor:
        """Return the bytes of a piece; copied only if they belong to several tensors."""
        import torch

        return self._bytes(piece[0]) if len(piece) == 1 else torch.cat([self._bytes(part) for part in piece])

    def room(self, piece: Sequence[TensorPart], *, apart: bool = False) -> Tensor:
        """Return where to receive a piece, ``apart`` from the tensors or in place."""
        import torch

        if len(piece) == 1 and not apart:
            return self._bytes(piece[0])
        size = sum(part.stop - part.start for part in piece)
        return torch.empty(size, dtype=torch.uint8, device=self._tensors[piece[0].number].device)

    def unpack(self, piece: Sequence[TensorPart], received: Tensor) -> None:
        """Copy a received piece into its tensors."""
        if len(piece) > 1:
            for part, data in zip(piece, received.split([part.stop for part in piece]), strict=True):
                self._bytes(part).copy_(data)

    def there(self, piece: Sequence[TensorPart]) -> None:
        """Record that a piece is in place."""
        for part in piece:
            self._on_part(*part)


def _broadcast(rank: int, parcel: _Parcel, piece: Sequence[TensorPart], sources: Sequence[int]) -> None:
    import torch
    import torch.distributed as dist

    with torch.no_grad():
        data = parcel.packed(piece) if rank == 0 else parcel.room(piece, apart=rank in sources)
        dist.broadcast(data, src=0)
        if rank not in sources:
            parcel.unpack(piece, data)
    parcel.there(piece)


class _Relay:
    """Receives pieces and forwards them. All members handle them in the same order, so there is no deadlock."""

    def __init__(self, parcel: _Parcel, lacking: int) -> None:
        self._parcel = parcel
        self._limit = _STANDSTILL * min(lacking, _MOST_STEPS)
        self._coming: deque[tuple[Any, Tensor, Sequence[TensorPart], int, int | None]] = deque()
        self._going: deque[tuple[Any, Tensor]] = deque()

    def send(self, data: Tensor, to: int, number: int) -> None:
        """Start to send piece ``number``."""
        import torch.distributed as dist

        self._going.append((dist.isend(data, to, tag=number), data))
        self._wait_to_send(_WINDOW)

    def receive(self, piece: Sequence[TensorPart], number: int, origin: int, to: int | None) -> None:
        """Start to receive a piece that is to be forwarded."""
        import torch.distributed as dist

        data = self._parcel.room(piece)
        self._coming.append((dist.irecv(data, origin, tag=number), data, piece, number, to))
        self._wait_to_receive(_WINDOW)

    def finish(self) -> None:
        """Wait until all was received and sent."""
        self._wait_to_receive(0)
        self._wait_to_send(0)

    def _wait_to_send(self, most: int) -> None:
        while len(self._going) > most:
            self._going.popleft()[0].wait(self._limit)

    def _wait_to_receive(self, most: int) -> None:
        while len(self._coming) > most:
            work, data, piece, number, to = self._coming.popleft()
            work.wait(self._limit)
            if to is not None:
                self.send(data, to, number)
            self._parcel.unpack(piece, data)
            self._parcel.there(piece)


def _pass_on(
    rank: int, parcel: _Parcel, pieces: Sequence[Sequence[TensorPart]], sources: Sequence[int], lacking: Sequence[int]
) -> None:
    import torch

    relay = _Relay(parcel, len(lacking))
    with torch.no_grad():
        for number, piece in enumerate(pieces):
            first = number % len(lacking)
            chain = [sources[number % len(sources)], *lacking[first:], *lacking[:first]]
            if rank not in chain:  # it has the state, and another sends this piece
                parcel.there(piece)
                continue
            at = chain.index(rank)
            if at:
                relay.receive(piece, number, chain[at - 1], chain[at + 1] if at + 1 < len(chain) else None)
            else:
                relay.send(parcel.packed(piece), chain[1], number)
                parcel.there(piece)
        relay.finish()


def share_state(state: StateBase, sources: Sequence[int], *, fresh: bool) -> None:
    """Send the state of the ``sources`` to all members; a ``fresh`` member receives it in place."""
    own = inner(state)
    place = own.group.place
    has, mine = place.rank in sources, capture(state)
    tree = offer(place, mine if has else None, (own.prepared or mine) if fresh else None)
    own.prepared = None
    on_cpu = all(one.device.type == "cpu" for one in tree.tensors)
    stale = own.copy_step != own.step and not has_recent_copy(own)
    copy = CopyInPieces(own, tree) if on_cpu and (stale if has else fresh) else None
    own.mixed = fresh and not has
    move(place, tree, sources, _Reporter(own, copy.take if copy else None))
    if not has:
        restore(state, tree, ours=True)
    own.mixed = False
    if copy:
        copy.finish()


def broadcast_bytes(data: bytes) -> bytes:
    """Return the bytes of rank 0; called by all members."""
    import torch
    import torch.distributed as dist

    length = torch.tensor([len(data)], dtype=torch.int64)
    dist.broadcast(length, src=0)
    box = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(int(length), dtype=torch.uint8)
    dist.broadcast(box, src=0)
    return ctypes.string_at(box.data_ptr(), box.numel())
