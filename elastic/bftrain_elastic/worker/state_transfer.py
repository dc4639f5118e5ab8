"""Sends the state from rank 0 to the members that lack it: broadcasts pieces directly into place.

A time limit applies to each piece, not to the whole transfer.
"""

from __future__ import annotations

import ctypes
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import repeat
from typing import Any, Final

from bftrain_elastic.worker.checkpoint_file import fits_in_memory
from bftrain_elastic.worker.lazy_torch import dist, torch
from bftrain_elastic.worker.process_groups import GroupRank
from bftrain_elastic.worker.state_tree import StateTree, Tensor, TreeShape, as_bytes, read_shapes, shapes_of
from bftrain_elastic.worker.state_values import StateBase, capture, empty_copy, inner, restore

_PIECE_BYTES: Final = 8 * 1024 * 1024
_LEAST_PIECE_BYTES: Final = 1024 * 1024
_SMALL_BYTES: Final = 256 * 1024  # smaller tensors travel together
_WINDOW: Final = 4  # number of pieces in flight
_PIECE_TIMEOUT: Final = timedelta(seconds=20)  # timeout for a piece
_DESCRIPTION: Final = "bftrain/state"
_DESCRIPTION_TIMEOUT: Final = timedelta(seconds=3)


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
    own, current = inner(state), capture(state)
    tree = receivable(description, current)
    present = {id(one) for one in current.tensors.values()}
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
    return present if TreeShape.of(present) == replace(shape, device=shape.here) else shape.empty()


def move(
    place: GroupRank,
    tree: StateTree,
    sources: Sequence[int] = (0,),
    copy: StateTree | None = None,
    moved: Callable[[int], object] = lambda _count: None,
) -> None:
    """Fill the trees of members outside ``sources``, which all have the same tree; called by all members.

    ``copy`` receives the same values while the rest is on its way; ``moved`` is called with the bytes so far.
    """
    lacking = [rank for rank in range(place.workers) if rank not in sources]
    if not lacking:
        return
    # Members that have the tree and need not receive it
    others = tree.size > _LEAST_PIECE_BYTES and len(lacking) + 1 < place.workers
    group = dist.new_group([0, *lacking], backend="gloo") if others and tree.on_cpu else None
    ignores = place.rank > 0 and place.rank in sources  # it drops the received data
    pending: deque[tuple[Any, Tensor, list[Tensor], list[Tensor]]] = deque()
    count = 0

    def complete_oldest() -> None:
        nonlocal count
        work, data, piece, copies = pending.popleft()
        if work is not None:
            work.wait(_PIECE_TIMEOUT)
        count += sum(map(len, piece))
        if place.rank in lacking and len(piece) > 1:
            for part, received in zip(piece, data.split([len(part) for part in piece]), strict=True):
                part.copy_(received)
        for target, part in zip(copies, piece, strict=copy is not None):
            target.copy_(part)
        moved(count)

    with torch.no_grad():
        # The memory of an older copy may have another order
        copied_pieces = repeat(list[Tensor]()) if copy is None else _pieces(copy.tensors[name] for name in tree.tensors)
        for piece, copies in zip(_pieces(tree.tensors.values()), copied_pieces, strict=copy is not None):
            idle = group is not None and ignores
            data = torch.cat(piece) if not idle and (len(piece) > 1 or ignores) else piece[0]
            pending.append(
                (None if idle else dist.broadcast(data, src=0, group=group, async_op=True), data, piece, copies)
            )
            if len(pending) > _WINDOW:
                complete_oldest()
        while pending:
            complete_oldest()


def _pieces(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yield the bytes of tensors in pieces: a part of a large tensor, or several small ones of a device."""
    together: list[Tensor] = []
    for tensor in sorted(tensors, key=lambda one: str(one.device.type)):
        other = together and together[0].device != tensor.device
        if other or sum(map(len, together)) >= _LEAST_PIECE_BYTES:
            yield together
            together = []
        if tensor.nbytes >= _SMALL_BYTES:
            yield from ([part] for part in as_bytes(tensor).split(_PIECE_BYTES))
        elif tensor.nbytes:
            together.append(as_bytes(tensor))
    if together:
        yield together


def share_state(state: StateBase, sources: Sequence[int], *, fresh: bool) -> None:
    """Send the state of the ``sources`` to all members; a ``fresh`` member receives it in place."""
    own = inner(state)
    place = own.group.place
    has, current = place.rank in sources, capture(state)
    tree = offer(place, current if has else None, (own.copies.prepared or current) if fresh else None)
    own.copies.prepared = None
    stale = own.copies.step != own.progress.step and not own.copies.recent
    copy = empty_copy(own, tree) if tree.on_cpu and (stale if has else fresh) else None
    own.copies.mixed = fresh and not has
    move(place, tree, sources, copy, partial(own.progress.moved, place.generation))
    if not has:
        restore(state, tree, ours=True)
    own.copies.mixed = False
    if copy is not None:
        with own.copies.lock:
            own.copies.take(copy, own.progress.step)


def broadcast_bytes(data: bytes) -> bytes:
    """Return the bytes of rank 0; called by all members."""
    length = torch.tensor([len(data)], dtype=torch.int64)
    dist.broadcast(length, src=0)
    box = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(int(length), dtype=torch.uint8)
    dist.broadcast(box, src=0)
    return ctypes.string_at(box.data_ptr(), box.numel())
