"""The result folder of a command, and its exit code if the run was interrupted or a requested metric failed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bftrain.errors import BrokenPlugin, Interrupted, UsageError

if TYPE_CHECKING:
    from bftrain.cli.output import Output
    from bftrain.result_folder import ResultFolder
    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_replay.run.run import EarlyFiles, Run, RunKind


def load_log_with_kinds(path: Path, kinds: Path | None) -> EventLog:
    """Load a log, and the kinds of its nodes if a file has them."""
    from bftrain_datasets.log.edits import with_kinds
    from bftrain_datasets.log.log_files import load_log

    return load_log(path) if kinds is None else with_kinds(load_log(path), kinds)


def check_cluster_alone(log: Path | None, kinds: Path | None) -> None:
    """Raise if a log or a file of kinds is given with a cluster."""
    if log is not None:
        raise UsageError("a cluster takes the place of a log", where="--cluster", fix="omit LOG or --cluster")
    if kinds is not None:
        raise UsageError("a cluster names its kinds itself", where="--kinds", fix="omit it")


class RunFolder:
    """The result folder of a run, if the caller wants one. Use it in a ``with`` block."""

    def __init__(self, target: ResultFolder | None, tables: str) -> None:
        self.written = False
        self._target, self._tables = target, tables
        self._early: EarlyFiles | None = None

    @classmethod
    def of(cls, kind: RunKind, folder: Path | None, tables: str, *, overwrite: bool) -> Self:
        """Return the folder of a kind of run."""
        from bftrain.result_folder import ResultFolder

        return cls(None if folder is None else ResultFolder(folder, kind.folder, overwrite=overwrite), tables)

    def __enter__(self) -> Self:
        if self._target is not None:
            self._target.__enter__()
        return self

    def __exit__(self, error: type[BaseException] | None, *more: object) -> None:
        if self._target is not None:
            self._target.__exit__(error, *more)

    def write_early(self, run: Run) -> None:
        """Write the files that comparison replays do not change; ``write`` then writes the rest."""

        def write(draft: Path) -> None:
            self._early = run.write_early(draft, self._tables)

        if self._target is not None:
            self._target.write_ahead(write)

    def write(self, run: Run, *, complete: bool) -> None:
        """Write a run, unless it is partial and the folder has a finished one."""
        if self._target is not None and (complete or not self._target.holds_finished):
            self._target.replace(lambda draft: run.write_into(draft, self._tables, self._early))
            self.written = True

    def end(self, out: Output | None, *, complete: bool, broken: Iterable[BrokenPlugin] = ()) -> None:
        """Print the folder to ``out``; raise if the run is not complete, or if metrics are ``broken``."""
        folder = None if self._target is None else self._target.path
        if self.written and out is not None:
            out.say(f"result: {folder}")
        if not complete:
            kept = f'the result in {folder} is partial ("complete": false)'
            if not self.written:
                kept = f"the finished result in {folder} is unchanged" if folder else "these figures cover a part"
            raise Interrupted(f"interrupted; {kept}")
        errors = {error.where: error for error in broken}
        if errors:
            where = ", ".join(str(each) for each in errors)
            what = "returned no numbers; the other results are valid"
            raise BrokenPlugin(what, where=where) from next(iter(errors.values())).__cause__
