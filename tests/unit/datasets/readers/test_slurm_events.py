"""Downtime of nodes as sacctmgr prints it, beside the records of jobs."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from bftrain import BadInput
from tests.helpers.records import finding, imported
from tests.helpers.samples import DAY

JOBS = f"JobID|Start|End|NodeList\n1|{DAY}|{DAY + 10}|n[1-2]\n2|{DAY + 90}|{DAY + 100}|n[1-2]\n"
HEADER = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"


def event(nodes: str, start: object, end: object, state: str = "DOWN") -> str:
    return f"c|{nodes}|{start}|{end}|{state}|a | reason|root(0)\n"


def test_nodes_are_down_while_they_are_out_and_idle(tmp_path: Path) -> None:
    events = (
        HEADER + event("n1", DAY + 5, DAY + 30) + event("n1", DAY + 20, DAY + 50) + event("n2", DAY + 80, "Unknown")
    )
    for files in permutations((JOBS, events)):
        found = imported(tmp_path, *files)
        assert found.format == "sacct"
        assert found.log.idle_node_s == 160 - (50 - 10) - (90 - 80)
        assert finding(found, "node_down").node_s == 50


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    rows = {
        "other_record": [event("", DAY, DAY + 9), event("n1", DAY, DAY + 9, "IDLE")],
        "bad_time": [event("n1", "soon", DAY)],
        "bad_nodes": [event("n[1", DAY, DAY + 9)],
        "bad_state": [event("n1", DAY, DAY + 9, "ODD")],
        "malformed": ["c|n1\n"],
    }
    found = imported(tmp_path, JOBS, HEADER + "".join(row for group in rows.values() for row in group))
    assert found.rows.aside == {reason: len(group) for reason, group in rows.items()}
    assert found.log.idle_node_s == 160


@pytest.mark.parametrize("state", ["DRAIN", "DRAINED", "DOWN*", "MAINT"])
def test_states_that_are_out(tmp_path: Path, state: str) -> None:
    assert imported(tmp_path, JOBS, HEADER + event("n1", DAY + 20, DAY + 50, state)).log.idle_node_s == 130


def test_downtime_alone_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no row describes a node that was held"):
        imported(tmp_path, HEADER + event("n1", DAY, DAY + 9))


def test_nodes_that_the_options_declare_down(tmp_path: Path) -> None:
    found = imported(tmp_path, JOBS, down_nodes=((("n1",), DAY + 20, DAY + 50), (("n2",), None, DAY + 30)))
    assert found.log.idle_node_s == 160 - 30 - 20
    with pytest.raises(BadInput, match="the log has no 'n9'"):
        imported(tmp_path, JOBS, down_nodes=((("n9",), None, None),))
