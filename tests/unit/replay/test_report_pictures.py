"""Pictures of a replay: their data hold what was, checked moment by moment against plain counting."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

import bftrain
from bftrain import Settings
from tests.unit.replay.cases import figures_of, log_of, page_of, task

LOG = log_of(
    (0.0, "abcd", ""), (130.0, "", "b"), (410.0, "ef", "a"), (700.0, "ab", "cd"), (1500.0, "", "ef"), end_s=2000.0
)
IDLE = {
    "a": [(0.0, 410.0), (700.0, 2000.0)],
    "b": [(0.0, 130.0), (700.0, 2000.0)],
    "c": [(0.0, 700.0)],
    "d": [(0.0, 700.0)],
    "e": [(410.0, 1500.0)],
    "f": [(410.0, 1500.0)],
}


def unpacked(text: str) -> npt.NDArray[np.int64]:
    """All lowest bytes stand first, then all second ones, and so on."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.uint8).reshape(4, -1).astype(np.int64)
    return planes[0] + (planes[1] << 8) + (planes[2] << 16) + (planes[3] << 24)


def states_of(raster: dict[str, Any]) -> dict[str, list[tuple[float, str]]]:
    """Return from when on each row of a raster is in which state; times are seconds since the log's start."""
    many, later, states = (unpacked(raster[name]) for name in ("counts", "later", "states"))
    at = np.frombuffer(zlib.decompress(base64.b64decode(raster["at"])), dtype="<f8")
    found: dict[str, list[tuple[float, str]]] = {}
    ends = np.cumsum(many).tolist()
    for row, name in enumerate(raster["rows"]):
        part = slice(ends[row] - int(many[row]), ends[row])
        when = at[np.cumsum(later[part])].tolist()
        found[name] = [(time_s, raster["labels"][state]) for time_s, state in zip(when, states[part], strict=True)]
    return found


def state_at(changes: list[tuple[float, str]], time_s: float) -> str:
    return [state for since_s, state in changes if since_s <= time_s][-1]


def test_at_each_moment_each_node_is_shown_with_who_had_it() -> None:
    done = bftrain.replay(LOG, [task("x", max_nodes=2), task("y", max_nodes=2), task("z", max_nodes=1)], Settings())
    raster = figures_of(page_of(done))["holders"]["raster"]
    assert tuple(raster["rows"]) == LOG.node_names
    held = list(done.result.table("allocations").itertuples(index=False))
    seen = set()
    for name, changes in states_of(raster).items():
        for time_s in np.arange(0.5, 2000.0, 1.0):
            had = [row.task for row in held if row.node == name and row.from_s <= time_s < row.to_s]
            idle = any(begin <= time_s < end for begin, end in IDLE[name])
            expected = had[0] if had else "idle, unused" if idle else "the batch queue's"
            assert state_at(changes, time_s) == expected, (name, time_s)
            seen.add(expected)
    assert len(seen) >= 4


@pytest.mark.parametrize("by", ["kind", "partition", "rack", "name"])
def test_rows_of_nodes_stand_in_groups(by: str) -> None:
    log = log_of((0.0, ("b2", "a10", "a9", "b1"), ()), (500.0, (), ("a10", "b1")), end_s=1000.0)
    sets = {"v100": "a10,b[1-2]", "k80": "a9"}
    if by == "partition":
        log = replace(log, provenance=msgspec.structs.replace(log.provenance, partitions=sets))
    if by == "kind":
        log = replace(log, kind_names=("v100", "k80"), node_kinds=np.array([0, 0, 1, 0], dtype=np.int32))
        assert log.node_names == ("a10", "a9", "b1", "b2")
    done = bftrain.replay(log, [task("x", max_nodes=2)], Settings(racks=sets if by == "rack" else {}))
    figure = figures_of(page_of(done))["holders"]
    raster = figure["raster"]
    assert raster["rows"] == (["b1", "a9", "a10", "b2"] if by == "kind" else ["a9", "a10", "b1", "b2"])
    groups = ["a*", "b*"] if by == "name" else ["k80", "v100"]
    assert [name for name, *_ in raster["groups"]] == groups
    assert figure["spec"]["encoding"]["y"]["axis"]["title"] == f"nodes, by {by}"
    for name, changes in states_of(raster).items():
        gone = state_at(changes, 900.0) == "the batch queue's"
        assert gone is (name in {"a10", "b1"})
