"""How xdist hands out tests: those of a file together, and those of files marked ``apart`` one by one."""

from __future__ import annotations

import functools
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[2]
MARK = "pytest.mark.apart"


@functools.cache
def is_apart(file: str) -> bool:
    """Return whether a file marks all of its tests so. Only the processes that run tests know the marks themselves."""
    return any(MARK in line for line in (ROOT / file).read_text(encoding="utf-8").splitlines() if "pytestmark" in line)


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types here
    """Groups tests by file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if is_apart(file) else file
