"""The script of examples that gives Slurm jobs the priorities of OStrich's order."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.helpers.slurm import Slurm, lacking, wait_until

SCRIPT = Path(__file__).parents[2] / "examples" / "ostrich_slurm.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ostrich_slurm", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def queue(script: ModuleType, text: str) -> dict[str, Any]:
    return {job["id"]: job for job in script.jobs(text)}


def test_the_smaller_campaign_goes_first(script: ModuleType) -> None:
    text = "".join(f"{n} ann 0 1 20:00 0:00 PENDING\n" for n in range(1, 7))
    text += "".join(f"{n} bob 1 1 10:00 0:00 PENDING\n" for n in range(7, 13))
    state: dict[str, Any] = {}
    jobs = queue(script, text)
    script.advance(state, jobs, 10.0)
    assert script.order(state, jobs) == [*"789", "10", "11", "12", *"123456"]


def test_virtual_time_goes_to_the_oldest_campaign_of_each_user(script: ModuleType) -> None:
    jobs = queue(
        script, "1 ann 0 6 20:00 0:00 RUNNING\n2 ann 900 1 1:00 0:00 PENDING\n3 bob 1000 1 30:00 0:00 PENDING\n"
    )
    state: dict[str, Any] = {}
    script.advance(state, jobs, 1000.0)
    assert [each["left"] for each in state["campaigns"]] == [7200.0, 60.0, 1800.0]
    script.advance(state, jobs, 1100.0)  # six processors for 100 s, half for each user
    assert [each["left"] for each in state["campaigns"]] == [6900.0, 60.0, 1500.0]
    assert script.order(state, jobs) == ["3", "2"]
    del jobs["1"]  # ended 1,100 s before its limit, and so did its campaign
    script.advance(state, jobs, 1100.0)
    assert script.order(state, jobs) == ["2", "3"]


@pytest.mark.parametrize(
    ("text", "expected"), [("5:30", 330), ("1:00:00", 3600), ("2-00:00:01", 172_801), ("UNLIMITED", 604_800)]
)
def test_times_of_slurm(script: ModuleType, text: str, expected: int) -> None:
    assert script.seconds(text) == expected


@pytest.mark.skipif(bool(lacking()), reason=lacking() or "Slurm is here")
def test_priorities_on_a_real_slurm(tmp_path: Path) -> None:
    with Slurm(nodes=1, more_settings="PriorityType=priority/multifactor") as slurm:
        slurm.submit("sleep 60", "--time=10")
        wait_until(lambda: bool(slurm.run("squeue", "-h", "-t", "RUNNING").stdout), "the first job runs", slurm.logs)
        long, short = slurm.submit("sleep 1", "--time=30"), slurm.submit("sleep 1", "--time=5")
        state = tmp_path / "state.json"
        slurm.run(sys.executable, str(SCRIPT), str(state))
        shown = slurm.run("squeue", "-h", "-t", "PENDING", "--sort=-p", "-o", "%i %Q").stdout.split()
        assert shown == [short, "1000000", long, "999999"]
        assert json.loads(state.read_text())["priorities"] == {short: 1_000_000, long: 999_999}
