"""Moves pieces of sharded trainings between the members of a group."""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from bftrain_elastic.worker.process_groups import GroupRank
from bftrain_elastic.worker.shard_pieces import DIVIDED_FROM, LiveShard, PackedShards, ShardPiece, TensorBox
from bftrain_elastic.worker.state_tree import StateTree

_NODE: Final = "BFTRAIN_NODE"
_HASH_BYTES: Final = 6
_TOGETHER_BYTES: Final = 256 * 1024  # parts up to this size travel together
Table = Sequence[ShardPiece]
Tensor = Any  # torch is imported only where a script uses it


def gathered(place: GroupRank, value: object) -> list[Any]:
    """Return the JSON values of all members, by rank."""
    text = json.dumps(value, separators=(",", ":")).encode()
    if place.workers == 1:
        return [json.loads(text)]
    import torch
    import torch.distributed as dist

    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(place.workers)]
    dist.all_gather(lengths, torch.tensor([len(text)]))
    longest = max(int(one) for one in lengths)
    boxes = [torch.empty(longest, dtype=torch.uint8) for _ in range(place.workers)]
    dist.all_gather(boxes, torch.frombuffer(bytearray(text.ljust(longest)), dtype=torch.uint8))
    return [json.loads(bytes(box[: int(length)].tolist())) for box, length in zip(boxes, lengths, strict=True)]


def gathered_tables(place: GroupRank, table: Table) -> list[list[ShardPiece]]:
    """Return the tables of all members."""
    return [[ShardPiece.of(one) for one in found] for found in gathered(place, table)]


def covers(tables: Iterable[Table], whole: Mapping[str, int]) -> bool:
    """Return whether pieces, all of one division, cover tensors with these numbers of elements."""
    boxes: dict[str, set[TensorBox]] = defaultdict(set)
    for table in tables:
        for piece in table:
            boxes[piece.name].add(piece.box)
    return all(sum(box.numel for box in boxes[name]) >= numel for name, numel in whole.items())


def _peer_distance(nodes: Sequence[int]) -> int:
    """Return the rank distance to the worker that stores a share's copy: on another node if there are several."""
    count = len(nodes)
    apart = {by: sum(nodes[rank] != nodes[(rank + by) % count] for rank in range(count)) for by in range(1, count)}
    return max(apart, key=lambda by: (apart[by], -by), default=0)


def _needs_peer(tables: Sequence[Table], nodes: Sequence[int]) -> list[bool]:
    """Return which members have a piece that no other node has; replicas of a model share theirs."""
    holders: dict[tuple[str, TensorBox], set[int]] = defaultdict(set)
    for rank, table in enumerate(tables):
        for piece in table:
            holders[piece.name, piece.box].add(nodes[rank])
    count = len(set(nodes))
    return [any(len(holders[one.name, one.box]) < min(2, count) or count == 1 for one in table) for table in tables]


class GroupTables:
    """The pieces of each member of a group, and the member to which each sends its copy."""

    def __init__(self, place: GroupRank, pieces: Sequence[ShardPiece]) -> None:
        name = os.environ.get(_NODE) or os.uname().nodename
        node = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=_HASH_BYTES).digest(), "little")
        found = gathered(place, [node, pieces])
        nodes = [int(one) for one, _ in found]
        self.tables = [[ShardPiece.of(one) for one in table] for _, table in found]
        self.whole = {one.name: one.whole for table in self.tables for one in table}
        self.sends = _needs_peer(self.tables, nodes)
        by = _peer_distance(nodes)
        self.peer, self.origin = (place.rank + by) % place.workers, (place.rank - by) % place.workers
        first: dict[tuple[Any, ...], int] = {}
        for rank, table in enumerate(self.tables):
            for one in table:
                first.setdefault((one.name, one.box), rank)
        self.writers = frozenset(first.values())  # the first owner writes a shared piece


class ShardVersion(NamedTuple):
    """One worker's part of the training at one commit."""

    generation: int
    step: int
    tree: StateTree  # the undivided part of the state
    packs: list[PackedShards]  # the own share first
    tables: GroupTables

    @property
    def key(self) -> tuple[int, int]:
        """Its order among all versions."""
        return self.generation, self.step


class _Part(NamedTuple):
    """A part of a piece, sent from one member to another."""

    source: int
    piece: int  # index among the source's pieces
    target: int
    wanted: int  # index among the target's wanted pieces
    box: TensorBox


def _parts(held: Sequence[Table], wanted: Sequence[Table]) -> Iterator[_Part]:
    """Yield the parts to move: from the member itself if possible, otherwise from the least loaded sender."""
    holders: dict[str, dict[TensorBox, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for rank, table in enumerate(held):
        for number, piece in enumerate(table):
            holders[piece.name][piece.box].setdefault(rank, number)
    sent = [0] * len(held)
    for target, table in enumerate(wanted):
        for number, want in enumerate(table):
            for box, ranks in holders[want.name].items():
                part = box.meet(want.box)
                if part is None:
                    continue
                if box.numel == want.whole < DIVIDED_FROM:
                    source = min(ranks)  # replicas may differ slightly: all members take the same one
                else:
                    source = target if target in ranks else min(ranks, key=lambda one: sent[one])
                sent[source] += part.numel * (source != target)
                yield _Part(source, ranks[source], target, number, part)


def fetch(place: GroupRank, packs: Sequence[PackedShards], live: Sequence[LiveShard]) -> None:
    """Fill tensors from the pieces of all members; called by all members.

    Parts that no piece covers stay unchanged.
    """
    mine = [(pack, number) for pack in packs for number in range(len(pack.pieces))]
    held = gathered_tables(place, [pack.pieces[number] for pack, number in mine])
    wants = [ShardPiece(one.name, "", one.shape, *one.box) for one in live if one.box.numel]
    targets = [one for one in live if one.box.numel]
    transfer = Transfer(place)
    for part in _parts(held, gathered_tables(place, wants)):
        if place.rank not in {part.source, part.target}:
            continue
        there = here = None
        if place.rank == part.source:
            pack, number = mine[part.piece]
            there = part.box.cut(pack.tensor(number), pack.pieces[number].box)
        if place.rank == part.target:
            here = part.box.cut(targets[part.wanted].tensor, targets[part.wanted].box)
        transfer.add(part.source, part.target, there, here)
    transfer.finish()


class Transfer:
    """Sends and receives tensors; all members add them in the same sequence, so both sides agree on messages."""

    def __init__(self, place: GroupRank) -> None:
        self._rank = place.rank
        self._small: dict[tuple[int, int], list[Tensor]] = defaultdict(list)
        self._works: list[tuple[Any, Tensor]] = []  # pending operations with their buffers
        self._unpacked: list[tuple[Tensor, Tensor]] = []  # received bytes, and where they belong
        self._count = [0] * place.workers  # messages with each other member

    def add(self, source: int, target: int, there: Tensor | None, here: Tensor | None) -> None:
        """Add one tensor: ``there`` on its source, ``here`` on its target."""
        import torch

        if there is not None and here is not None:
            with torch.no_grad():
                here.copy_(there)
        elif (present := there if here is None else here) is not None:
            if present.nbytes <= _TOGETHER_BYTES:
                self._small[source, target].append(present)
            elif there is not None:
                self._send(there, target)
            else:
                self._receive([present], source)

    def _send(self, data: Tensor, target: int) -> None:
        import torch.distributed as dist

        flat = data.contiguous().cpu()
        self._works.append((dist.isend(flat, target, tag=self._tag(target)), flat))

    def _receive(self, into: Sequence[Tensor], source: int) -> None:
        import torch
        import torch.distributed as dist

        in_place = len(into) == 1 and into[0].is_contiguous() and into[0].device.type == "cpu"
        if in_place:
            self._works.append((dist.irecv(into[0].detach(), source, tag=self._tag(source)), into[0]))
            return
        flat = torch.empty(sum(one.nbytes for one in into), dtype=torch.uint8)
        self._works.append((dist.irecv(flat, source, tag=self._tag(source)), flat))
        at = 0
        for one in into:
            self._unpacked.append((flat[at : at + one.nbytes], one))
            at += one.nbytes

    def _tag(self, other: int) -> int:
        self._count[other] += 1
        return self._count[other]

    def finish(self) -> None:
        """Send the small tensors together, and wait until all have arrived."""
        import torch

        with torch.no_grad():
            for (source, target), tensors in self._small.items():
                if self._rank == source:
                    flat = [one.contiguous().reshape(-1).view(torch.uint8).cpu() for one in tensors]
                    self._send(torch.cat(flat), target)
                else:
                    self._receive(tensors, source)
            for work, _ in self._works:
                work.wait()
            for data, into in self._unpacked:
                into.copy_(data.clone().view(into.dtype).view(into.shape))
