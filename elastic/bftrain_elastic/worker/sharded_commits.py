"""Commits of sharded trainings: each worker copies its own share, and stores a copy of another worker's.

Copies travel to the other worker while training continues, and count from the commit at which all have arrived. So a
worker stores up to two versions, and a commit does not wait for the network.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bftrain_elastic.errors import BadCommit
from bftrain_elastic.worker import checkpoint_file
from bftrain_elastic.worker.background_save import BackgroundJob
from bftrain_elastic.worker.process_groups import GroupRank, ProcessGroup
from bftrain_elastic.worker.shard_exchange import GroupTables, ShardVersion, Transfer, covers, gathered
from bftrain_elastic.worker.shard_files import ShardFiles, mapped
from bftrain_elastic.worker.shard_pieces import LiveShard, PackedShards, ShardPiece, nbytes, own_share
from bftrain_elastic.worker.state_saving import load
from bftrain_elastic.worker.state_transfer import broadcast_bytes, share_state
from bftrain_elastic.worker.state_tree import copied
from bftrain_elastic.worker.state_values import COPYING_SHARE, StateBase, capture, inner, restore

_ROOMS: Final = 3  # number of memory blocks kept for future copies
_WAIT_S: Final = 60.0  # timeout for an exchange in a previous group


class ShardedCommits:
    """The copies of all sharded trainings in a state, and the starting point of the present group."""

    def __init__(self, state: StateBase, parts: Mapping[str, Any]) -> None:
        self._own = inner(state)
        self._parts = parts
        self._initial = copied(capture(state), None)
        self._versions: list[ShardVersion] = []  # the latest safe version, and a newer one while the group changes
        self._pending: ShardVersion | None = None
        self._arriving: list[PackedShards] = []
        self._exchange = BackgroundJob()
        self._group: Any = None  # a separate process group: training must not wait for copies in flight
        self._layout: object = None
        self._tables: GroupTables | None = None
        self._rooms: list[Any] = []
        self._due_at = 0.0
        self._files = ShardFiles(self._own)
        self.named = ""  # files of the state that was read last
        self.source: Sequence[PackedShards] = ()  # starting point of the present group: the pieces that this worker has
        self.begun: dict[str, ShardPiece] = {}  # one piece of each tensor that it has there
        for part in parts.values():
            part.commits = self

    @property
    def place(self) -> GroupRank:
        """The place of this worker in the present group."""
        return self._own.group.place

    @property
    def group(self) -> ProcessGroup:
        """The present group."""
        return self._own.group

    def name_of(self, part: object) -> str:
        """Return the name of a part in the state."""
        return next(name for name, one in self._parts.items() if one is part)

    def commit(self, state: StateBase, *, planned: bool) -> None:
        """Copy this worker's share if a copy is due or the group is about to change; called by all members."""
        live, first, files = self._live(), self.place.rank == 0, self._files
        layout = [(one.name, one.shape, one.box) for one in live]
        flags = [layout != self._layout, self._exchange.busy, first and time.monotonic() >= self._due_at]
        flags += [first and files.due(), files.busy, files.failed]
        agreed = self._own.group.largest_each([int(one) for one in flags])
        changed, sending, due, save, writing, failed = map(bool, agreed)
        if self._pending is not None and (planned or not sending):
            self._take_pending()
        if files.writing is not None and not writing:
            files.finish(failed=failed)
        if planned:
            self._prepare_change(state, live)
            return
        alone = self.place.workers == 1
        wanted = save or (due and self._own.copies.alone) if alone else due
        if self._pending is None and wanted:
            self._begin(state, live, None if changed else self._tables)
            self._layout = layout
        if save and files.writing is None and self._versions and self._versions[-1].tables is self._tables:
            files.begin(self._versions[-1])

    def _live(self) -> list[LiveShard]:
        live = [one for name, part in self._parts.items() for one in part.live(name)]
        return own_share(live, self.place.rank, self.place.workers)

    def _copy(self, state: StateBase, live: Sequence[LiveShard], tables: GroupTables | None) -> ShardVersion:
        pack = PackedShards.copy_of(live, self._rooms.pop() if self._rooms else None)
        self._tables = tables or GroupTables(self.place, pack.pieces)
        tree = copied(capture(state), None)
        return ShardVersion(self.place.generation, self._own.progress.step, tree, [pack], self._tables)

    def _begin(self, state: StateBase, live: Sequence[LiveShard], tables: GroupTables | None) -> None:
        """Copy the share, and start to exchange it."""
        if tables is None:
            self._rooms.clear()
        begun = time.monotonic()
        self._pending = self._copy(state, live, tables)
        now = time.monotonic()
        self._due_at = now + (now - begun) * (1 / COPYING_SHARE - 1)
        if self.place.workers == 1:
            self._take_pending()
        else:
            self._send(self._pending)

    def _send(self, version: ShardVersion) -> None:
        import torch.distributed as dist

        if self._group is None:
            self._group = dist.new_group(backend="gloo")
        tables, works = version.tables, []
        if tables.sends[self.place.rank]:
            works.append(dist.isend(version.packs[0].data, tables.peer, group=self._group))
        if tables.sends[tables.origin]:
            room = self._rooms.pop() if self._rooms else None
            self._arriving = [PackedShards.empty(tables.tables[tables.origin], room)]
            works.append(dist.irecv(self._arriving[0].data, tables.origin, group=self._group))

        def wait() -> None:
            for work in works:
                work.wait()

        self._exchange.start(wait)

    def _take_pending(self) -> None:
        """Make the pending version, which all members now have, the one to return to."""
        version = self._pending
        if version is None:
            return
        self._exchange.wait()
        self._exchange.raise_error()
        version.packs.extend(self._arriving)
        old = [pack for one in self._versions if one.tables is version.tables for pack in one.packs]
        written = {id(pack) for pack in self._files.writing.packs} if self._files.writing else set()
        self._rooms = [*self._rooms, *(pack.data for pack in old if id(pack) not in written)][:_ROOMS]
        self._pending, self._arriving, self.source = None, [], ()
        self._use([version], version)

    def _use(self, versions: list[ShardVersion], current: ShardVersion) -> None:
        self._versions = versions
        self._own.copies.last, self._own.copies.step = current.tree, current.step

    def _prepare_change(self, state: StateBase, live: Sequence[LiveShard]) -> None:
        """Copy the present share, and hand over the shares of leaving members; write to disk if all leave."""
        version = self._copy(state, live, None)
        known = self._own.group.leaving()
        flags = self._own.group.largest_each([int(rank in known) for rank in range(self.place.workers)])
        leaving = [rank for rank, leaves in enumerate(flags) if leaves]
        if leaving and len(leaving) == self.place.workers:
            self._write_now(version)
        elif leaving:
            self._hand_over(version, leaving)
        self._use([*self._versions, version], version)

    def _hand_over(self, version: ShardVersion, leaving: Sequence[int]) -> None:
        tables = version.tables.tables
        load = {rank: 0 for rank in range(self.place.workers) if rank not in leaving}
        held = {(one.name, one.box) for rank in load for one in tables[rank]}
        given: dict[tuple[int, int], list[int]] = defaultdict(list)
        for giver in leaving:
            for number, one in enumerate(tables[giver]):
                if (one.name, one.box) not in held:
                    held.add((one.name, one.box))
                    taker = min(load, key=lambda rank: load[rank])
                    load[taker] += nbytes(one)
                    given[giver, taker].append(number)
        transfer = Transfer(self.place)
        for (giver, taker), numbers in given.items():
            if self.place.rank == giver:
                for number in numbers:
                    transfer.add(giver, taker, version.packs[0].tensor(number), None)
            elif self.place.rank == taker:
                pack = PackedShards.empty([tables[giver][number] for number in numbers])
                version.packs.append(pack)
                for number in range(len(numbers)):
                    transfer.add(giver, taker, None, pack.tensor(number))
        transfer.finish()

    def _write_now(self, version: ShardVersion) -> bool:
        """Write a version while all members wait; return whether it is on disk."""
        self._files.stop()
        self._files.begin(version)
        self._files.wait()
        failed = bool(self._own.group.largest(int(self._files.failed)))
        self._files.finish(failed=failed)
        self._own.group.largest(0)
        return not failed

    def save_together(self, state: StateBase) -> None:
        """Write the state as it is now; called by all members, and returns when it is on disk."""
        if self._own.saver.folder is not None and not self._write_now(self._copy(state, self._live(), None)):
            raise OSError(
                f"the shares of step {self._own.progress.step} could not be written to {self._own.saver.folder}"
            )

    def save(self, state: StateBase) -> None:
        """Write the state from one worker, which cannot include the other workers' shares."""
        folder = self._own.saver.folder
        if folder is None or checkpoint_file.step_of(folder) == self._own.progress.step:
            return
        if self.place.workers > 1:
            raise BadCommit(
                f"the shares of step {self._own.progress.step} are with workers that have left", where=str(folder)
            )
        self.save_together(state)

    def regroup(self, state: StateBase, *, holds: bool) -> None:
        """Agree on the version that this group continues from, and restore it; called by all members.

        The group picks the newest version with all pieces in memory, or the one on disk.
        """
        mine = self._own_versions()
        offers = [[one.key, one.tables.whole, [piece for pack in one.packs for piece in pack.pieces]] for one in mine]
        found = [
            {tuple(key): (whole, [ShardPiece.of(one) for one in table]) for key, whole, table in each}
            for each in gathered(self.place, offers)
        ]
        key = _last_covered(found)
        version = next((one for one in mine if one.key == key), None)
        sources = [rank for rank, each in enumerate(found) if key in each] if key else [0]
        if version is not None:
            restore(state, version.tree)
            self._use([version], version)
        elif key is None:
            self._restore_from_disk(state, holds=holds)
        if self.place.workers > 1:
            share_state(state, sources, fresh=not holds)
        if version is None:
            self._versions = []
            self._own.copies.last, self._own.copies.step = copied(capture(state), None), self._own.progress.step
        if key is not None:
            self.source = version.packs if version else ()
            self.begun = {one.name: one for each in found if key in each for one in each[key][1]}

    def _own_versions(self) -> list[ShardVersion]:
        """Return this worker's versions from previous groups."""
        self._files.stop()
        self._exchange.wait(_WAIT_S)
        mine = list(self._versions)
        if self._pending is not None:
            if not self._exchange.busy and self._exchange.error is None:
                self._pending.packs.extend(self._arriving)
            mine.append(self._pending)
        self._exchange.error = None
        self._pending = self._group = self._layout = self._tables = None
        self._arriving, self._rooms = [], []
        self._due_at = 0.0
        return mine

    def _restore_from_disk(self, state: StateBase, *, holds: bool) -> None:
        """Restore the state on disk, or the script's initial state."""
        self.named = ""
        if self.place.rank == 0 and not load(state) and holds:
            restore(state, self._initial)
        text = self.named.encode()
        if self.place.workers > 1:
            text = broadcast_bytes(text)
        folder = self._own.saver.folder
        self.source = mapped(folder, text.decode()) if text and folder is not None else ()
        self.begun = {one.name: one for pack in self.source for one in pack.pieces}


def _last_covered(found: Sequence[Mapping[Any, Any]]) -> Any:  # noqa: ANN401 - the key of a version
    """Return the newest version that the members have completely; the first member has its other values."""
    for key in sorted(found[0], reverse=True):
        held = [each[key] for each in found if key in each]
        if covers([table for _, table in held], {name: size for whole, _ in held for name, size in whole.items()}):
            return key
    return None
