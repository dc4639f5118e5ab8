"""Sharded trainings on disk: each worker writes its share to a separate file, and the state names these files.

The state is written last, so it never names an incomplete file. Files that it no longer names are removed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.errors import BadCommit
from bftrain_elastic.worker import checkpoint_file
from bftrain_elastic.worker.background_save import BackgroundJob
from bftrain_elastic.worker.process_groups import GroupRank
from bftrain_elastic.worker.shard_exchange import ShardVersion
from bftrain_elastic.worker.shard_pieces import PackedShards, ShardPiece
from bftrain_elastic.worker.state_saving import report_saved, warn_not_saved
from bftrain_elastic.worker.state_tree import NamedValues, StateTree
from bftrain_elastic.worker.state_values import SHARDS, StateInternals

_PIECE_BYTES: Final = 64 * 1024 * 1024
_BEGINNING: Final = "shards-"


class ShardFiles:
    """The files of one worker. ``writing`` is the version being written by all members, if any."""

    def __init__(self, own: StateInternals) -> None:
        self._own = own
        self._job = BackgroundJob()
        self._begun = 0.0
        self.writing: ShardVersion | None = None

    @property
    def _place(self) -> GroupRank:
        return self._own.group.place

    @property
    def busy(self) -> bool:
        """Whether this worker is writing."""
        return self._job.busy

    @property
    def failed(self) -> bool:
        """Whether this worker failed to write."""
        return self._job.error is not None

    def due(self) -> bool:
        """Return whether it is time to write a version."""
        own = self._own
        now = time.monotonic()
        return own.saver.folder is not None and self.writing is None and (own.saver.soon or now >= own.saver.due_at)

    def begin(self, version: ShardVersion) -> None:
        """Start to write a version while training continues; called by all members."""
        self.writing, self._begun = version, time.monotonic()
        self._own.saver.soon = False
        self._job.start(partial(self.write, version))

    def write(self, version: ShardVersion) -> None:
        """Write this worker's share of a version."""
        if self._own.saver.folder is None or self._place.rank not in version.tables.writers:
            return
        data = version.packs[0].data
        path = self._own.saver.folder / self._name(version, self._place.rank)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:  # noqa: PTH123 - a mode of our own
            for start in range(0, data.numel(), _PIECE_BYTES):
                self._job.go_on()
                file.write(memoryview(data[start : start + _PIECE_BYTES].numpy()))
            file.flush()
            os.fsync(file.fileno())

    def _name(self, version: ShardVersion, rank: int) -> str:
        return f"{_BEGINNING}{self._own.saver.lineage}-{version.generation}-{version.step}-{rank}"

    def finish(self, *, failed: bool) -> None:
        """Handle that all members have written their shares, or that a member failed."""
        version, self.writing, error, self._job.error = self.writing, None, self._job.error, None
        if version is None or (self._place.rank and error is None):
            return
        try:
            if error is not None or failed:
                raise error or OSError("another worker could not write its share")
            self.publish(version, self._begun)
        except (OSError, BadCommit) as found:
            warn_not_saved(self._own, version.step, found)

    def publish(self, version: ShardVersion, begun: float) -> None:
        """Publish a completely written version as the one on disk; called by the first worker."""
        folder = self._own.saver.folder
        if folder is None:
            return
        tables = version.tables
        files = {self._name(version, rank): tables.tables[rank] for rank in tables.writers}
        more = NamedValues()
        more.add(SHARDS, json.dumps(files, separators=(",", ":")))
        plain = json.loads(version.tree.plain)
        plain[1] += [json.loads(text) for text in more.texts]
        tree = StateTree(json.dumps(plain, separators=(",", ":")), version.tree.tensors)
        checkpoint_file.save(folder, tree, version.step, self._own.saver.lineage)
        for path in folder.glob(f"{_BEGINNING}*"):
            if path.name not in files:
                path.unlink(missing_ok=True)
        report_saved(self._own, version.step, begun)

    def wait(self) -> None:
        """Wait until this worker's share is written."""
        self._job.wait()

    def stop(self) -> None:
        """Abandon the current write."""
        self._job.stop()
        self.writing, self._job.error = None, None


def mapped(folder: Path, text: str) -> list[PackedShards]:
    """Return the shares that a state on disk names; they are read on use."""
    found: dict[str, Sequence[Any]] = json.loads(text)
    try:
        return [
            PackedShards.mapped([ShardPiece.of(one) for one in table], str(folder / name))
            for name, table in found.items()
        ]
    except FileNotFoundError as error:
        fix = "let all nodes of the task share this folder"
        raise BadCommit("is not here, though the state names it", where=str(error.filename), fix=fix) from error
