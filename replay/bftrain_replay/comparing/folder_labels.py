"""Labels: short names for folders, each its own."""

from __future__ import annotations

import re
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bftrain.errors import UsageError
from bftrain.values import checks

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST: Final = 20  # letters; from longer ones the words that all have in common are left out
_LARGEST_DEPTH: Final = 64  # folders above a folder


def labels_of(folders: Sequence[Path], given: Sequence[str] = ()) -> tuple[str, ...]:
    """Name folders: as ``given``, or else by the least of their paths that tells them apart."""
    if given:
        return _checked(given, len(folders))
    paths = [folder.resolve() for folder in folders]
    twice = checks.repeated([str(path) for path in paths])
    if twice is not None:
        raise UsageError(f"{twice} is given twice", fix="name folders of different replays")
    names = _without_common(["/".join(parts) for parts in _apart([path.parts for path in paths])])
    return tuple(name or str(folder) for name, folder in zip(names, folders, strict=True))


def numbered(names: Sequence[str]) -> tuple[str, ...]:
    """Give names that may be alike a number from the second of them on."""
    taken: list[str] = []
    for name in names:
        taken.append(next(each for each in (name, *_further(name, len(names))) if each not in taken))
    return tuple(taken)


def _further(name: str, most: int) -> list[str]:
    return [f"{name} {number}" for number, _ in zip(count(2), range(most), strict=False)]


def _checked(given: Sequence[str], wanted: int) -> tuple[str, ...]:
    names = tuple(name.strip() for name in given)
    if len(names) != wanted:
        raise UsageError(f"{len(names)} labels for {wanted} replays", where="--label", fix="give one for each")
    twice = checks.repeated(names)
    if twice is not None:
        raise UsageError(f"two replays are called '{twice}'", where="--label", fix="give every one its own")
    if not all(name.isprintable() and name for name in names):
        raise UsageError("a label must have letters, and no line breaks", where="--label")
    return names


def _apart(paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Take off what all paths end with, then keep as little of their ends as tells them apart."""
    if len(paths) == 1:
        return [paths[0][-1:]]
    while len(paths[0]) > 1 and len({path[-1] for path in paths}) == 1 and min(map(len, paths)) > 1:
        paths = [path[:-1] for path in paths]
    for depth in range(1, _LARGEST_DEPTH):
        ends = [path[-depth:] for path in paths]
        if len(set(ends)) == len(ends):
            return ends
    return list(paths)


def _without_common(names: list[str]) -> list[str]:
    """Leave out the words that long names begin or end with alike, such as those of a sweep's folders."""
    if len(names) == 1 or max(map(len, names)) <= LONGEST:
        return names
    parting = ",/ " if all("=" in name for name in names) else "-_.,/ "  # setting=value,... is parted at commas
    words = [re.split(rf"(?<=[{parting}])", name) for name in names]  # each word with what parts it from the next
    for _ in range(2):
        alike = len(list(takewhile(lambda at: len(set(at)) == 1, zip(*words, strict=False))))
        words = [each[min(alike, len(each) - 1) :][::-1] for each in words]
    shorter = ["".join(each).strip("-_.,/ ") for each in words]
    return shorter if len(set(shorter)) == len(names) and all(shorter) else names
