"""Reservations of Slurm as downtime of their nodes, beside the records of jobs."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest

from bftrain_datasets.log.idle_doubts import doubts_of
from tests.helpers.records import finding, idle_second_by_second, imported, kinds
from tests.helpers.samples import DAY, reservation
from tests.helpers.scheduler_lines import iso

STAYS = [("n1", 0, 10), ("n2", 0, 10), ("n1", 90, 100), ("n2", 90, 100)]
JOBS = f"JobID|Start|End|NodeList\n1|{DAY}|{DAY + 10}|n[1-2]\n2|{DAY + 90}|{DAY + 100}|n[1-2]\n"


@pytest.mark.parametrize("one_line", [False, True])
def test_nodes_of_a_maintenance_are_down_while_it_lasts_and_no_job_holds_them(
    tmp_path: Path, *, one_line: bool
) -> None:
    text = reservation("a", DAY + 5, DAY + 30, "n1") + reservation("b", DAY + 25, DAY + 40, "n[1-2]")
    if one_line:  # scontrol -o
        text = "".join(" ".join(part.split()) + "\n" for part in text.split("\n\n") if part.strip())
    held = [(node, DAY + begin, DAY + end) for node, begin, end in STAYS]
    out = [("n1", DAY + 5, DAY + 40), ("n2", DAY + 25, DAY + 40)]
    for files in permutations((JOBS, text)):
        found = imported(tmp_path, *files, timezone="UTC")
        assert found.format == "sacct"
        assert found.log.idle_node_s == idle_second_by_second(found.log, held + out) == 160 - 30 - 15
        assert finding(found, "node_down").node_s == 30 + 15


def test_what_is_kept_for_chosen_users_is_doubtful(tmp_path: Path) -> None:
    found = imported(tmp_path, JOBS, reservation("class", DAY + 20, DAY + 50, "n2", flags="OVERLAP,SPEC_NODES"))
    assert found.log.idle_node_s == 160
    assert found.rows.aside == {"reserved": 1}
    assert doubts_of(found.log).causes == {"reserved": pytest.approx(30 / 3600)}


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    rows = {
        "other_record": [reservation("l", DAY, DAY + 9, "(null)")],
        "bad_time": [reservation("t", "soon", DAY, "n1")],
        "bad_nodes": [reservation("n", DAY, DAY + 9, "n[1")],
    }
    text = "No reservations in the system\n" + "".join(row for group in rows.values() for row in group)
    found = imported(tmp_path, JOBS, text, timezone="UTC")
    assert found.rows.aside == {reason: len(group) for reason, group in rows.items()}
    assert imported(tmp_path, JOBS, "No reservations in the system\n").rows.aside == {}


def test_earlier_ones_out_of_the_database(tmp_path: Path) -> None:
    header = "Cluster|Name|TRES|TimeStart|TimeEnd|Flags|NodeNames|UnusedWall\n"
    rows = f"c|m|cpu=4|{iso(DAY + 20)}|{iso(DAY + 50)}|MAINT,SPEC_NODES|n1.site|0\nc|m\n"
    found = imported(tmp_path, JOBS, header + rows, timezone="UTC")
    assert found.log.idle_node_s == 130
    assert found.rows.aside == {"malformed": 1}
    assert imported(tmp_path, JOBS, header + rows, timezone="UTC", cluster="c").log.idle_node_s == 130


def test_nodes_that_no_record_has_are_counted(tmp_path: Path) -> None:
    found = imported(tmp_path, JOBS, reservation("m", DAY + 20, DAY + 50, "x[1-3]"), timezone="UTC")
    assert finding(found, "strange_outages").count == 3
    assert "node_down" not in kinds(found)


def test_reservations_as_json(tmp_path: Path) -> None:
    """Slurm 23.11 and later write a number that may be missing as three fields, and flags as a list."""

    def number(value: int) -> dict[str, object]:
        return {"set": True, "infinite": False, "number": value}

    of_node = {"name": "m", "node_count": 1, "node_list": "n1", "start_time": number(DAY + 20)}
    listed = [
        {**of_node, "end_time": number(DAY + 50), "flags": ["MAINT", "SPEC_NODES"]},
        {**of_node, "end_time": DAY + 60, "flags": "OVERLAP", "node_list": "n2"},
        {**of_node, "node_list": "", "end_time": number(DAY + 50), "flags": []},
    ]
    found = imported(tmp_path, JOBS, json.dumps({"reservations": listed, "last_update": number(DAY)}, indent=1))
    assert found.log.idle_node_s == 160 - 30
    assert found.rows.aside == {"reserved": 1, "other_record": 1}
    assert doubts_of(found.log).causes == {"reserved": pytest.approx(40 / 3600)}
    assert imported(tmp_path, JOBS, json.dumps({"reservations": [], "last_update": number(DAY)})).rows.aside == {}
