"""Cache of outcomes: passes of earlier commands, found by the content of all that they are made from.

The key of a pass is a SHA-256 over the log's content and provenance, the tasks, all settings, the versions of the
computing packages, the processor architecture, and bftrain's own source, so outcomes of other code are never reused.
Damaged entries are computed again. Non-repeatable passes are not cached: passes with plugins, with measured solver
time, with an unfinished solve, and failed passes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

import msgspec

from bftrain.errors import BadInput
from bftrain.files import user_cache
from bftrain.registry import PORTS
from bftrain.values import wire
from bftrain.values.solution import Termination
from bftrain_replay import plugin_files, private_cache
from bftrain_replay.simulation.replay_settings import MEASURED
from bftrain_replay.sweeping.sweep_inputs import SweepCluster
from bftrain_replay.sweeping.sweep_passes import (
    PassExecutor,
    PassKind,
    PassOutcome,
    PassStatus,
    Stopping,
    SweepPass,
    Tell,
)

NO_CACHE: Final = "BFTRAIN_NO_CACHE"  # environment variable: replay everything again
FOLDER: Final = "replays"
_MOST_BYTES: Final = 1 << 28
_LEFT_SHARE: Final = 0.8  # fraction of the limit that remains after a cleanup
_OFF: Final = frozenset({"", "0", "false", "no", "off"})
_PACKAGES: Final = ("bftrain", "bftrain_solvers", "bftrain_datasets", "bftrain_replay")
_SOURCES: Final = frozenset({".py", ".c", ".h"})
_CUT_SHORT: Final = frozenset({Termination.TIME_LIMIT, Termination.INTERRUPTED, Termination.FAILED})


class OutcomeCache:
    """Outcomes in a private folder, limited to a total size in bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damaged = 0  # number of unusable entries

    @classmethod
    def of_user(cls, *, wanted: bool = True) -> Self | None:
        """Return the cache in the user's cache folder; ``None`` without one, or if no cache is ``wanted``."""
        place = user_cache()
        if not wanted or place is None or os.environ.get(NO_CACHE, "").lower() not in _OFF:
            return None
        return cls(place / FOLDER)

    def count(self, jobs: Iterable[SweepPass]) -> int:
        """Return the number of passes with an entry; contents are not checked."""
        return sum(_repeats(job) and self.entry(job).is_file() for job in jobs)

    @property
    def remark(self) -> str:
        """The warning about damaged entries; "" if there were none."""
        if not self.damaged:
            return ""
        entries = "1 earlier result" if self.damaged == 1 else f"{self.damaged:,} earlier results"
        return f"{self.folder}: {entries} damaged, or writable by other users; computed again"

    def find(self, job: SweepPass) -> PassOutcome | None:
        """Return the outcome of a pass, if present and intact."""
        if not _repeats(job):
            return None
        path = self.entry(job)
        content = private_cache.read(path)
        if content is None:
            return None
        with suppress(BadInput):
            outcome = wire.decode(content, PassOutcome)
            if outcome.id == job.id and outcome.made_from.kind is job.made_from.kind:
                with suppress(OSError):
                    os.utime(path)  # the least recently used entries are removed first
                return outcome
        self.damaged += 1
        return None

    def keep(self, job: SweepPass, outcome: PassOutcome) -> None:
        """Add an outcome, if every run of the pass has the same."""
        if _repeats(job) and _finished(outcome):
            private_cache.write(self.entry(job), wire.encode(outcome))

    def trim(self) -> None:
        """Remove the least recently used entries if all together are too large."""
        with suppress(OSError):
            files = []
            for entry in os.scandir(self.folder):
                with suppress(FileNotFoundError):  # another command may remove entries at the same time
                    about = entry.stat(follow_symlinks=False)
                    files.append((about.st_mtime, about.st_size, entry.path))
            total = sum(size for _, size, _ in files)
            if total <= _MOST_BYTES:
                return
            for _, size, path in sorted(files):
                Path(path).unlink(missing_ok=True)
                total -= size
                if total <= _LEFT_SHARE * _MOST_BYTES:
                    return

    def entry(self, job: SweepPass) -> Path:
        """Return the file of a pass."""
        cluster = job.log if isinstance(job.log, SweepCluster) else None
        made_from = (job.made_from, job.log_origin, cluster, job.edges_s, program_sha256(), _libraries())
        return self.folder / f"{hashlib.sha256(wire.encode(made_from)).hexdigest()}.json"


class CachedExecutor:
    """Yields outcomes from a cache, and lets another executor run the remaining passes."""

    def __init__(self, executor: PassExecutor, outcomes: OutcomeCache | None, *, keeps: bool = True) -> None:
        self.taken: set[str] = set()  # ids of the passes from the cache
        self.cache = outcomes
        self._executor = executor
        self._keeps = keeps  # false for workers whose source code may differ

    def outcomes(self, jobs: Sequence[SweepPass], tell: Tell, stopping: Stopping) -> Iterator[PassOutcome]:
        """Yield cached outcomes, then run the remaining passes and add theirs."""
        to_run = {}
        for job in jobs:
            if stopping():
                return
            found = self.cache.find(job) if self.cache else None
            if found is None:
                to_run[job.id] = job
            else:
                self.taken.add(job.id)
                yield found
        if not to_run:
            return
        try:
            for outcome in self._executor.outcomes(tuple(to_run.values()), tell, stopping):
                if self.cache and self._keeps:
                    self.cache.keep(to_run[outcome.id], outcome)
                yield outcome
        finally:
            if self.cache and self._keeps:
                self.cache.trim()


@cache
def program_sha256() -> str:
    """Return the SHA-256 of the source code that replays."""
    digest = hashlib.sha256()
    for name in _PACKAGES:
        found = find_spec(name)
        for folder in found.submodule_search_locations or () if found else ():
            for file in sorted(file for file in Path(folder).rglob("*") if file.suffix in _SOURCES):
                content = file.read_bytes()
                digest.update(f"{name}/{file.relative_to(folder)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


@cache
def _libraries() -> tuple[str, ...]:
    """Return the processor architecture and the version of SciPy, which a pass does not name."""
    try:
        return platform.machine(), version("scipy")
    except PackageNotFoundError:
        return platform.machine(), ""


@cache
def _parts_of_others() -> frozenset[str]:
    return frozenset(entry.name for port in PORTS for entry in entry_points(group=f"bftrain.{port}"))


def _repeats(job: SweepPass) -> bool:
    """Return whether the key of a pass contains all that its outcome depends on."""
    settings = [value for value in msgspec.structs.astuple(job.how) if isinstance(value, str)]
    words = {word.strip() for value in settings for word in re.split("[,=]", value)}
    return MEASURED not in settings and words.isdisjoint(_parts_of_others()) and not any(plugin_files.files(job.how))


def _finished(outcome: PassOutcome) -> bool:
    """Return whether a pass was done, and no decision depended on the machine's speed."""
    if outcome.status is not PassStatus.DONE:
        return False
    if outcome.made_from.kind is PassKind.YARDSTICKS:
        return not outcome.warnings  # warnings report unfinished solves
    return outcome.figures is None or _CUT_SHORT.isdisjoint(outcome.figures.fallback_causes)
