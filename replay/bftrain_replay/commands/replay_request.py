"""The request of a replay or of rounds, and the end of commands that were interrupted or lack figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bftrain.errors import BadValue, BrokenPlugin, UsageError
from bftrain.values.options import AUTO

if TYPE_CHECKING:
    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_replay.simulation.replay_settings import ReplaySettings


def exit_if_broken(metrics: Iterable[BrokenPlugin]) -> None:
    """Exit with an error if a metric failed, because a requested figure is missing."""
    broken = {error.where: error for error in metrics}
    if broken:
        where = ", ".join(str(each) for each in broken)
        what = "returned no numbers; the other results are valid"
        raise BrokenPlugin(what, where=where) from next(iter(broken.values())).__cause__


def kept_files_text(folder: Path, *, written: bool) -> str:
    """Return in words what an interrupted command leaves in its folder."""
    if not written:
        return f"the finished result in {folder} is unchanged"
    return f'the result in {folder} is partial ("complete": false)'


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs, the place of the result, and options; ``given`` are the settings. ``None``: not given."""

    log: Path | None
    cluster: Mapping[str, int] | None
    kinds: Path | None
    task_file: Path | None
    folder: Path | None
    tables: str
    overwrite: bool
    config: Path | None
    given: Mapping[str, Any]
    until_s: float | None = None
    baseline: str = ""
    quick: bool = False
    no_cache: bool = False

    @property
    def auto_cap(self) -> bool:
        """Whether the cap on competing tasks is to be found."""
        return self.given.get("max_tasks") == AUTO

    @property
    def settings(self) -> ReplaySettings:
        """The settings from file and options."""
        from bftrain.cli.settings import option_of, settings_of_kind
        from bftrain_replay.simulation.replay_settings import PUBLISHED, ReplaySettings

        given = {**self.given, **({"max_tasks": None} if self.auto_cap else {})}
        settings = settings_of_kind(self.config, given, ReplaySettings)
        if settings.semantics == PUBLISHED and given.get("progress") is not None:
            fix = "omit it, or replay realistic"
            raise BadValue("is unknown to the published rules", where=option_of("progress"), fix=fix)
        return settings

    def load_log(self, path: Path) -> EventLog:
        """Read the log, and the kinds of its nodes if a file has them."""
        from bftrain_datasets.log.edits import with_kinds
        from bftrain_datasets.log.log_files import load_log

        return load_log(path) if self.kinds is None else with_kinds(load_log(path), self.kinds)

    def check_cluster_alone(self) -> None:
        """Raise for options that a cluster sets itself."""
        if self.log is not None:
            raise UsageError("a cluster takes the place of a log", where="--cluster", fix="omit LOG or --cluster")
        if self.kinds is not None:
            raise UsageError("a cluster names its kinds itself", where="--kinds", fix="omit it")
