"""NoStream: the stand-in for a state stream under launchers that do not stream the state to new workers."""

from __future__ import annotations


class NoStream:
    """The place of a stream of the state to new workers, where there is none."""

    @property
    def is_followed(self) -> bool:
        """Whether a new worker receives the state."""
        return False

    def holds(self, tree: object) -> bool:  # noqa: ARG002 - as a stream has it
        """Return whether a copy is being sent."""
        return False

    def at_commit(self, *, leaving: bool) -> None:
        """Handle a commit, after which the group is left or not."""
