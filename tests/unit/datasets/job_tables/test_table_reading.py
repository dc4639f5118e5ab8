"""GPUs and cores in tables of jobs, held against plain loops over their rows."""

from __future__ import annotations

import csv
import io
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest

from bftrain import BadInput
from tests.helpers.records import busy_node_s, imported, kinds
from tests.helpers.samples import DAY
from tests.helpers.slot_loops import Stay, idle_slot_s

ROWS: Final = Path(__file__).parents[3] / "data" / "public_jobs"  # as published; docs/readers.md says where from


def rows_of(name: str) -> str:
    return (ROWS / name).read_text()


def moment(text: str, zone: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def philly_stays(records: list[dict[str, Any]]) -> list[Stay]:
    return [
        (
            moment(attempt["start_time"], "America/Los_Angeles"),
            moment(attempt["end_time"], "America/Los_Angeles"),
            {each["ip"]: {int(gpu.removeprefix("gpu")) for gpu in each["gpus"]} for each in attempt["detail"]},
        )
        for record in records
        for attempt in record["attempts"]
        if attempt["start_time"]
    ]


def philly_records(jobs: int) -> list[dict[str, Any]]:
    """Draw jobs in the shape of Philly's cluster_job_log: attempts on machines of two or eight GPUs, by name."""
    chance = random.Random(3)  # noqa: S311 - the same jobs every time
    base, records = datetime(2017, 10, 9, tzinfo=UTC), []
    for number in range(jobs):
        start = base + timedelta(seconds=chance.randrange(200_000))
        end = start + timedelta(seconds=chance.randrange(60, 9_000))
        machines = chance.sample(range(1, 13), chance.choice((1, 1, 1, 2)))
        detail = [
            {
                "ip": f"m{each}",
                "gpus": [f"gpu{slot}" for slot in chance.sample(range(2 if each % 3 else 8), chance.choice((1, 2)))],
            }
            for each in machines
        ]
        tried = {"start_time": f"{start:%Y-%m-%d %H:%M:%S}", "end_time": f"{end:%Y-%m-%d %H:%M:%S}", "detail": detail}
        never = {"start_time": None, "end_time": None, "detail": []}
        records.append(
            {"status": "Pass", "vc": "a", "jobid": f"j{number}", "attempts": [tried] if number % 9 else [never],
             "submitted_time": f"{base:%Y-%m-%d %H:%M:%S}", "user": "u"}
        )  # fmt: skip
    return records


@pytest.mark.parametrize("records", [json.loads(rows_of("philly.json")), philly_records(400)], ids=["rows", "drawn"])
def test_idle_gpus_of_philly_are_those_of_a_plain_loop(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    stays = philly_stays(records)
    window = min(stay[0] for stay in stays), max(stay[1] for stay in stays)
    found = imported(tmp_path, json.dumps(records), unit="gpu", window=window)
    there = {node: 0 for _, _, held in stays for node in held}
    for name in found.log.node_names:
        there[name.partition("/")[0]] += 1
    assert found.log.idle_node_s == pytest.approx(idle_slot_s(stays, there, *window), rel=1e-12)
    assert {"units_numbered", "units_divided"}.isdisjoint(kinds(found))  # which GPUs is on record
    found = imported(tmp_path, json.dumps(records), unit="gpu", window=window, node_units=8)
    assert found.log.idle_node_s == pytest.approx(idle_slot_s(stays, dict.fromkeys(there, 8), *window), rel=1e-12)


def test_idle_gpus_of_helios_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    text = rows_of("helios.csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    stays: list[Stay] = [
        (
            moment(row["start_time"], "Asia/Shanghai"),
            moment(row["end_time"], "Asia/Shanghai"),
            {"all": int(row["gpu_num"])},
        )
        for row in rows
    ]
    window = min(stay[0] for stay in stays), max(stay[1] for stay in stays)
    found = imported(tmp_path, text, unit="gpu", node_units=8, node_count=16, window=window)
    assert found.log.node_names[:9] == (*(f"n0001/gpu{slot}" for slot in range(8)), "n0002/gpu0")
    assert found.log.idle_node_s == pytest.approx(idle_slot_s(stays, {"all": 128}, *window), rel=1e-12)
    with pytest.raises(BadInput, match=r"number of GPUs of a node.*--node-gpus N"):
        imported(tmp_path, text, unit="gpu")


def test_gpus_and_cores_of_any_table_with_nodes(tmp_path: Path) -> None:
    text = (
        f"start,end,hosts,gpus,cores\n{DAY},{DAY + 9},n[1-2],4,6\n{DAY + 3},{DAY + 9},n1,1,0\n{DAY},{DAY + 9},n3,0,2\n"
    )
    found = imported(tmp_path, text, unit="gpu", window=(DAY, DAY + 9.0))
    assert found.log.node_names == ("n1/gpu0", "n1/gpu1", "n1/gpu2", "n2/gpu0", "n2/gpu1")
    assert (found.log.idle_node_s, found.rows.aside) == (3.0, {"no_units": 1})
    found = imported(tmp_path, text, unit="core", node_units=4)
    assert found.log.idle_node_s == 9.0 * (3 * 4 - 6 - 2)
    with pytest.raises(BadInput, match="missing: its GPUs"):
        imported(tmp_path, text.replace("gpus", "other"), unit="gpu")
    alone = "began,took,g\n1600000000,60,3\n1600000030,60,4\n"
    found = imported(tmp_path, alone, map=("start=began", "elapsed=took", "gpus=g:4"), unit="gpu")
    assert (len(found.log.node_names), found.log.idle_node_s) == (8, 8 * 90.0 - 3 * 60 - 4 * 60)


def test_states_of_slurms_database_are_numbers(tmp_path: Path) -> None:
    rows = ((1, "n1", 3, DAY + 50), (2, "n2", 1, 0), (3, "n3", 0, 0), (4, "n3", 11, DAY + 70))
    text = "".join(f"{job}\t{nodes}\t1\t{state}\t{DAY}\t{end}\n" for job, nodes, state, end in rows)
    found = imported(tmp_path, "id_job\tnodelist\tnodes_alloc\tstate\ttime_start\ttime_end\n" + text)
    assert found.rows.aside == {"never_started": 1}
    assert busy_node_s(found.log) == 50 + 70 + 70  # the second job still runs when the records end
