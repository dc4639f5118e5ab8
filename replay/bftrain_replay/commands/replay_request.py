"""What is asked of a replay on the command line, wherever its nodes come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bftrain_replay.simulation.replay_settings import ReplaySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The inputs, where the result goes, and what besides; ``given`` are the settings. ``None``: nothing was said."""

    log: Path | None
    cluster: Mapping[str, int] | None
    until_s: float | None
    ideal: bool | None
    kinds: Path | None
    task_file: Path | None
    folder: Path | None
    baseline: str
    tables: str
    resume: bool
    overwrite: bool
    config: Path | None
    given: Mapping[str, Any]
    quick: bool = False

    @property
    def settings(self) -> ReplaySettings:
        """Merge the file of settings and the options; raise ``BadValue`` for two that contradict each other."""
        from bftrain.cli.settings import option_of, settings_of_kind
        from bftrain.errors import BadValue
        from bftrain_replay.simulation.progress_assumptions import agreed
        from bftrain_replay.simulation.replay_settings import PUBLISHED, ReplaySettings

        try:
            given = agreed(self.given)
        except BadValue as error:
            raise BadValue(error.what, where=option_of("checkpoint_interval_s"), fix=error.fix) from error
        settings = settings_of_kind(self.config, given, ReplaySettings)
        if settings.semantics == PUBLISHED and given.get("progress") is not None:
            fix = "leave it out, or replay realistic"
            raise BadValue("is unknown to the published rules", where=option_of("progress"), fix=fix)
        return settings

    @property
    def note_on_config(self) -> str:
        """Return a note if the file of settings leaves out one whose default has changed since; else nothing."""
        from bftrain.config import parsed, read
        from bftrain_replay.output.old_settings import note_on_progress
        from bftrain_replay.simulation.progress_assumptions import agreed

        if self.config is None or agreed(self.given).get("progress") is not None:
            return ""
        note = note_on_progress(parsed(read(self.config), str(self.config)))
        return f"{self.config}: {note}" if note else ""
