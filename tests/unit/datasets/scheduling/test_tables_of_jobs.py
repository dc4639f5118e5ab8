"""Tables that tell submission, run time and size are scheduled as an SWF log of the same jobs is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

import bftrain
from bftrain import BadInput
from tests.helpers.samples import DAY, swf_job

JOBS: Final = [
    (1, 0, 5, 600, 2),
    (2, 10, 0, 1200, 3),
    (3, 20, 40, 300, 1),
    (4, 30, 0, 900, 4),
]  # submit, wait, run, nodes
TABLE: Final = "job_id,user,submit_time,start_time,end_time,num_nodes,num_cores\n" + "".join(
    f"{job},ann lee,{DAY + submit},{DAY + submit + wait},{DAY + submit + wait + run},{nodes},{nodes * 2}\n"
    for job, submit, wait, run, nodes in JOBS
)
ROWS: Final = Path(__file__).parents[3] / "data" / "public_jobs"


def scheduled(folder: Path, text: str, **options: Any) -> Any:  # noqa: ANN401 - see ScheduleSettings, a result
    path = folder / "jobs"
    path.write_text(text)
    return bftrain.schedule(path, **options)


def test_a_table_is_scheduled_like_the_same_jobs_in_swf(tmp_path: Path) -> None:
    log = f"; UnixStartTime: {DAY}\n; MaxNodes: 4\n" + "".join(swf_job(*job) for job in JOBS)
    ours, theirs = scheduled(tmp_path, TABLE, nodes=4), scheduled(tmp_path, log)
    assert ours.schedule.start_s == theirs.schedule.start_s
    assert ours.log.idle_node_s == theirs.log.idle_node_s
    assert ours.workload.jobs.users == ("ann_lee",)


def test_nodes_may_be_shared_where_the_table_tells_cores(tmp_path: Path) -> None:
    assert scheduled(tmp_path, TABLE, nodes=1, cores_per_node=8, sharing="cores").workload.jobs.size == [4, 6, 2, 8]
    assert scheduled(tmp_path, TABLE, nodes=4, cores_per_node=8).workload.jobs.size == [2, 3, 1, 4]
    with pytest.raises(BadInput, match=r"number of cores per node is unknown .--set cores-per-node=N"):
        scheduled(tmp_path, TABLE, nodes=4, sharing="cores")
    with pytest.raises(BadInput, match=r"missing: its cores .cores."):
        scheduled(tmp_path, TABLE.replace("num_cores", "c"), nodes=4, cores_per_node=8, sharing="cores")


def test_a_table_without_submission_says_so(tmp_path: Path) -> None:
    text = TABLE.replace("submit_time", "made")
    with pytest.raises(BadInput, match=r"missing: the submission of a job .submit.; other.*by --map submit=COL"):
        scheduled(tmp_path, text, nodes=4)
    named = scheduled(tmp_path, text, nodes=4, map="submit=made, count = num_nodes")
    assert named.schedule.start_s == scheduled(tmp_path, TABLE, nodes=4).schedule.start_s


def test_a_table_that_tells_no_starts_is_scheduled(tmp_path: Path) -> None:
    """As Philly's: what counts is when jobs came, how long they ran and how much they had."""
    lines = "".join(f"{DAY + at},{run},{nodes},vc{job % 2}\n" for job, at, _, run, nodes in JOBS)
    table, mapped = "timestamp,duration,num_gpus,cluster\n" + lines, "submit=timestamp,count=num_gpus"
    with pytest.raises(BadInput, match=r"select one: --map cluster=cluster:vc1, or cluster:all"):
        scheduled(tmp_path, table, nodes=4, map=mapped)
    found = scheduled(tmp_path, table, nodes=4, map=f"{mapped},cluster=cluster:all")
    assert found.schedule.start_s == scheduled(tmp_path, TABLE, nodes=4).schedule.start_s
    cores = {"sharing": "cores", "cores_per_node": 4, "map": "submit=timestamp,cores=num_gpus,cluster=cluster:all"}
    assert scheduled(tmp_path, table, nodes=1, **cores).schedule.start_s == found.schedule.start_s


def test_a_public_set_is_named(tmp_path: Path) -> None:
    text = (ROWS / "mira.csv").read_text()
    assert scheduled(tmp_path, text, preset="mira").workload.nodes == 49_152
    with pytest.raises(BadInput, match=r"unknown public set .alfc. .did you mean .alcf."):
        scheduled(tmp_path, text, preset="alfc")


def test_units_of_columns_are_named(tmp_path: Path) -> None:
    lines = "".join(f"{job};{(DAY + at) * 1000};{run / 60};{nodes}\n" for job, at, _, run, nodes in JOBS)
    mapped = "submit=a:ms,start=a:ms,elapsed=b:min,count=c"
    found = scheduled(tmp_path, "job;a;b;c\n" + lines, nodes=4, map=mapped)
    assert found.schedule.start_s == scheduled(tmp_path, TABLE, nodes=4).schedule.start_s


def test_public_sets_are_scheduled() -> None:
    found = bftrain.schedule(ROWS / "mira.csv")
    assert (found.workload.nodes, found.workload.rows.used) == (49_152, 3)
    assert len(bftrain.schedule(ROWS / "eagle.csv", nodes=20).workload.jobs) == 4


def test_rows_that_never_ran_are_set_aside(tmp_path: Path) -> None:
    odd = f"5,b,{DAY},,,2,4\n6,b,{DAY},{DAY + 5},,2,4\n7.batch,b,{DAY},{DAY},{DAY + 5},2,4\n8,b,,{DAY},{DAY + 5},2,4\n"
    rows = scheduled(tmp_path, TABLE + odd, nodes=4).workload.rows
    assert rows.aside == {"no_usage": 1, "bad_time": 2, "other_record": 1}
