"""Several tasks out of one: a grid of hyper-parameters, or an array of numbers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bftrain.errors import UsageError

_MOST: Final = 1000  # tasks at once
_INDEX: Final = "index"
INDEX_VARIABLE: Final = "BFTRAIN_INDEX"
_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_POINT: Final = re.compile(r"\d{1,9}:\d+(\.\d*)?([eE]\d{1,2})?")
Values = Mapping[str, str]


def variants(grid: Sequence[str], array: str | None) -> list[Values]:
    """Return the values of each task: all combinations of a grid, the last parameter changing fastest."""
    axes: dict[str, list[str]] = {}
    for text in grid:
        name, equals, given = text.partition("=")
        if not equals or not _NAME.fullmatch(name) or not all(given.split(",")) or name in axes:
            raise UsageError(f"'{text}' is not NAME=VALUE,VALUE, once for each name", where="--grid", fix="lr=0.1,0.01")
        axes[name] = given.split(",")
    if array is not None:
        axes[_INDEX] = _numbers(array)
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > _MOST:
        raise UsageError(f"that are {count} tasks, and {_MOST} are the most at once", where="--grid, --array")
    return [dict(zip(axes, combination, strict=True)) for combination in itertools.product(*axes.values())]


def _numbers(text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        last = int(match[2] or match[1]) if match else 0
        if match is None or last < int(match[1]) or last - int(match[1]) > _MOST:
            raise UsageError(f"'{text}' is no list of numbers", where="--array", fix="such as 0-9 or 1,3,7-9")
        found += [str(number) for number in range(int(match[1]), last + 1)]
    return found


def vary(record: Mapping[str, Any], values: Values, stem: str) -> dict[str, Any]:
    """Return the record of one task: ``{NAME}`` in its words is replaced, another value is an option ``--NAME VALUE``.

    Its name, and the part of a given folder that is its own, end with the values; all are of one campaign.
    """
    base = str(record.get("name") or stem)
    ending = "".join(f"-{'' if name == _INDEX else name}{value}" for name, value in values.items())
    named = re.sub(r"[^A-Za-z0-9._-]", "-", base + ending).lstrip("._-")[:100]
    args, used = [], set()
    for word in record.get("args", ()):
        changed = str(word)
        for name, value in values.items():
            if f"{{{name}}}" in changed:
                used.add(name)
                changed = changed.replace(f"{{{name}}}", value)
        args.append(changed)
    for name, value in values.items():
        args += [] if name in used or name == _INDEX else [f"--{name}", value]
    found = {"campaign": base, **record, "name": named, "args": args}
    if "folder" in record:
        found["folder"] = f"{record['folder']}/{named}"
    if _INDEX in values:
        found["env"] = {**record.get("env", {}), INDEX_VARIABLE: values[_INDEX]}
    return found


def read_curves(texts: Sequence[str]) -> dict[str, Any]:
    """Read speeds by size, ``1:100,2:190``, or by kind of node, ``v100=1:310,4:1160``, as keys of a task."""
    curves: dict[str, dict[str, list[float]]] = {}
    for text in texts:
        kind, equals, points = text.rpartition("=")
        found = [_POINT.fullmatch(point) for point in points.split(",")]
        if bool(kind) != bool(equals) or kind in curves or (curves and "" in (kind, *curves)) or None in found:
            fix = "such as 1:100,2:190, or for each kind v100=1:310,4:1160"
            raise UsageError(f"'{text}' is not NODES:SAMPLES_PER_SECOND,...", where="--curve", fix=fix)
        pairs = [point.split(":") for point in points.split(",")]
        curves[kind] = {"nodes": [int(nodes) for nodes, _ in pairs], "rate": [float(rate) for _, rate in pairs]}
    if not curves:
        return {}
    return {"curve": curves[""]} if "" in curves else {"curves": curves}
