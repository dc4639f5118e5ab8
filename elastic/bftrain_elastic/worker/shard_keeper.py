"""The interface of the keeper of a state's shards, so that states without any do not load it."""

from __future__ import annotations

from typing import Protocol


class StateBase:
    """The part of a :class:`bftrain_elastic.State` that saving and agreeing need: its attributes by name."""


class ShardKeeper(Protocol):
    """Commits, saves and restores what is divided among the workers, together with the rest of a state."""

    named: str  # the files of the state that was read last

    def commit(self, state: StateBase, *, planned: bool) -> None:
        """Copy this worker's share if that is due, or the group is about to change; called by all members."""

    def save(self, state: StateBase) -> None:
        """Write the state, by one worker."""

    def save_together(self, state: StateBase) -> None:
        """Write the state; called by all members."""

    def regroup(self, state: StateBase, *, holds: bool) -> None:
        """Restore the last version that the members of a new group hold together; called by all of them."""
