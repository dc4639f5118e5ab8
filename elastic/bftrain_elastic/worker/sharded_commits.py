"""Commits of sharded trainings: ``torch.distributed.checkpoint`` writes the shares of all workers to the task's folder.

The state names the folder of its shares and is written last, so it never names incomplete shares. A new group reads
its shares from there, of any size.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.errors import BadCommit
from bftrain_elastic.worker import checkpoint_file
from bftrain_elastic.worker.process_groups import GroupRank, ProcessGroup
from bftrain_elastic.worker.state_saving import load, report_saved, warn_not_saved
from bftrain_elastic.worker.state_transfer import share_state
from bftrain_elastic.worker.state_tree import copied
from bftrain_elastic.worker.state_values import StateBase, capture, inner, restore

_BEGINNING: Final = "shards-"


class ShardedCommits:
    """Saves and restores all sharded trainings in a state, together with the rest of it."""

    def __init__(self, state: StateBase, parts: Mapping[str, Any]) -> None:
        self._own = inner(state)
        self._parts = parts
        self._initial = copied(capture(state), None)
        self.named = ""  # name of the folder with the shares of the state that was read or written last
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

    @property
    def source(self) -> Path | None:
        """The folder with the shares from which the present group starts; None: the script's initial state."""
        folder = self._own.saver.folder
        return folder / self.named if folder is not None and self.named else None

    def name_of(self, part: object) -> str:
        """Return the name of a part in the state."""
        return next(name for name, one in self._parts.items() if one is part)

    def commit(self, state: StateBase, *, planned: bool) -> None:
        """Write the state if a save is due or the group is about to change; called by all members."""
        saver = self._own.saver
        due = self.place.rank == 0 and (saver.soon or time.monotonic() >= saver.due_at)
        if self._own.group.largest(int(due)) or planned:
            self._write(state)

    def _write(self, state: StateBase) -> bool:
        """Write the state while all members wait; return whether it is on disk."""
        from torch.distributed import checkpoint

        own, begun = self._own, time.monotonic()
        folder, step = own.saver.folder, own.progress.step
        if folder is None:
            return False
        own.saver.soon, failure, before = False, None, self.named
        name = f"{_BEGINNING}{own.saver.lineage}-{self.place.generation}-{step}"
        if name == self.named:  # never write where the state on disk points
            name += "-again"
        tensors = {key: one for part_name, part in self._parts.items() for key, one in part.tensors(part_name).items()}
        try:
            checkpoint.save(tensors, checkpoint_id=folder / name, no_dist=self.place.workers == 1)
            if self.place.rank == 0:
                self._publish(state, folder, name)
        except (OSError, BadCommit, checkpoint.api.CheckpointException) as error:
            failure = OSError(" ".join(str(error).split()))
        if own.group.largest(int(failure is not None)):
            if self.place.rank == 0:
                warn_not_saved(own, step, failure or OSError("another worker could not write its share"))
            self.named = before
            return False
        self.named = name
        own.copies.last, own.copies.step = copied(capture(state), None), step
        if self.place.rank == 0:
            report_saved(own, step, begun)
        return True

    def _publish(self, state: StateBase, folder: Path, name: str) -> None:
        """Name completely written shares in the state on disk, and remove the others."""
        self.named = name
        checkpoint_file.save(folder, capture(state), self._own.progress.step, self._own.saver.lineage)
        for path in folder.glob(f"{_BEGINNING}*"):
            if path.name != name:
                shutil.rmtree(path, ignore_errors=True)

    def save_together(self, state: StateBase) -> None:
        """Write the state as it is now; called by all members, and returns when it is on disk."""
        if self._own.saver.folder is not None and not self._write(state):
            raise OSError(
                f"the shares of step {self._own.progress.step} could not be written to {self._own.saver.folder}"
            )

    def save(self, state: StateBase) -> None:
        """Write the state from one worker, which cannot include the other workers' shares."""
        folder, step = self._own.saver.folder, self._own.progress.step
        if folder is None or checkpoint_file.step_of(folder) == step:
            return
        if self.place.workers > 1:
            raise BadCommit(f"the shares of step {step} are with workers that have left", where=str(folder))
        self.save_together(state)

    def regroup(self, state: StateBase, *, holds: bool) -> None:
        """Restore the state on disk, or the script's initial state; called by all members."""
        self.named = ""
        if self.place.rank == 0 and not load(state) and holds:
            restore(state, self._initial)
        if self.place.workers > 1:
            share_state(state, [0], fresh=not holds)
        self._own.copies.last, self._own.copies.step = copied(capture(state), None), self._own.progress.step
