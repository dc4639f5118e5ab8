"""Slurm's jobs as scontrol prints them, of our own making."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain_datasets.log.eventlog import NodeState
from tests.helpers.records import busy_node_s, finding, imported
from tests.helpers.samples import DAY, scontrol_job


@pytest.mark.parametrize("form", ["paragraphs", "lines"])
def test_jobs_in_paragraphs_and_in_lines(tmp_path: Path, form: str) -> None:
    text = scontrol_job(1, DAY, DAY + 50, "n[1-2]", count=2) + scontrol_job(2, DAY + 60, DAY + 100, "n1")
    text += scontrol_job(3, DAY + 70, DAY + 9000, "n2", state="RUNNING")
    if form == "lines":
        text = "".join(" ".join(part.split()) + "\n" for part in text.split("\n\n") if part.strip())
    found = imported(tmp_path, text)
    assert found.format == "scontrol"
    assert busy_node_s(found.log) == 2 * 50 + 40 + 30
    assert finding(found, "still_running").count == 1


def test_parts_of_heterogeneous_jobs_and_of_arrays(tmp_path: Path) -> None:
    heads = ("HetJobId=1 HetJobOffset=0 ", "PackJobId=1 PackJobOffset=1 ", "ArrayJobId=1 ArrayTaskThrottle=2 ")
    jobs = [scontrol_job(each, DAY, DAY + 50, f"n{each}") for each in range(3)]
    found = imported(tmp_path, "".join(map(str.replace, jobs, ["JobName="] * 3, [f"{head}JobName=" for head in heads])))
    assert (found.rows.aside, busy_node_s(found.log)) == ({}, 150)


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    rows = {
        "never_started": [
            scontrol_job(1, DAY + 500, "Unknown", "(null)", state="PENDING", count="1-1"),
            scontrol_job(2, DAY, DAY, "", state="CANCELLED"),
        ],
        "bad_time": [scontrol_job(3, "soon", DAY, "n1")],
        "nodes_differ": [scontrol_job(4, DAY, DAY + 9, "n1", count=3)],
        "malformed": ["JobId=9 JobName=cut\n\n"],
    }
    text = "".join(row for group in rows.values() for row in group)
    found = imported(tmp_path, scontrol_job(7, DAY, DAY + 9, "n1", name="a StartTime=0 b") + text)
    assert found.rows.aside == {reason: len(group) for reason, group in rows.items()}
    assert busy_node_s(found.log) == 9


DETAIL = "   JOB_GRES=gpu:3\n     Nodes=n1 CPU_IDs=0-3 Mem=10 GRES=gpu:a100:2(IDX:1-2)\n"
OLDER = "     Nodes=n[2-3] CPU_IDs=4,6 Mem=10 GRES_IDX=gpu(IDX:0)\n"
COUNTED = "     Nodes=n4 CPU_IDs= Mem=10 GRES=gpu:2,craynetwork:1\n"


def cores(nodes: tuple[int, ...], numbers: tuple[int, ...]) -> set[str]:
    return {f"n{node}/core{number}" for node in nodes for number in numbers}


@pytest.mark.parametrize(
    ("detail", "unit", "held"),
    [
        (DETAIL + OLDER, "gpu", {"n1/gpu1", "n1/gpu2", "n2/gpu0", "n3/gpu0"}),
        (DETAIL + OLDER, "core", cores((1,), (0, 1, 2, 3)) | cores((2, 3), (4, 6))),
        (COUNTED, "gpu", {"n4/gpu0", "n4/gpu1"}),
        ("   TRES=cpu=6,mem=4G,node=3,gres/gpu=3\n", "gpu", {"n1/gpu0", "n2/gpu0", "n3/gpu0"}),
        ("   ReqTRES=cpu=1\n   AllocTRES=cpu=6,gres/gpu:a=3\n", "core", cores((1, 2, 3), (0, 1))),
    ],
)
def test_gpus_and_cores_of_running_jobs(tmp_path: Path, detail: str, unit: str, held: set[str]) -> None:
    job = scontrol_job(1, DAY, DAY + 9, "n4" if detail == COUNTED else "n[1-3]", state="RUNNING", count="")
    text = job.replace("   WorkDir", f"{detail}   Command=/bin/x Nodes=n9 CPU_IDs=7 Mem=1\n   WorkDir")
    text += scontrol_job(2, DAY, DAY + 20, "n9", name="TRES=gres/gpu=1")
    log = imported(tmp_path, text, unit=unit, window=(DAY, DAY + 5)).log
    states = log.states_at(DAY).tolist()
    names = {name for name, state in zip(log.node_names, states, strict=True) if state == NodeState.BUSY}
    assert {name for name in names if not name.startswith("n9/")} == held
