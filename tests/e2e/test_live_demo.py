"""The demo of a live run for real: PyTorch trains on slots of this machine that come and go."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ClusterShell.NodeSet import NodeSet

pytestmark = [pytest.mark.torch, pytest.mark.apart]


def test_tasks_grow_shrink_and_survive_a_timetable_that_begins_when_they_are_warm(tmp_path: Path) -> None:
    demo = subprocess.run(
        [sys.executable, "-m", "bftrain", "live", "--demo", "--for", "36", "--json"],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    said = demo.stderr
    before, _, after = said.partition("the timetable starts")
    assert _slots_idle_in(before) == {"slot1", "slot2"}
    assert "slot4" in _slots_idle_in(after.partition("taken back")[0])
    assert "taken back" in after
    assert said.index("given back") < said.index("stopped; the state is in")
    result = json.loads(demo.stdout)
    tasks = {task["name"]: task for task in result["tasks"]}
    assert set(tasks) == {"pictures", "letters", "waves"}
    for task in tasks.values():
        assert task["samples"] == 96 * task["step"], "no step was counted twice, and none is missing"
        assert task["nodes"] == []
        assert task["state"] in {"done", "waiting"}
        assert task["failures"] == 0
    assert sum(task["step"] > 0 for task in tasks.values()) > 1
    assert sum(task["preemptions"] for task in tasks.values()) > 0
    assert sum(task["rescales"] for task in tasks.values()) > 0
    used = sum(task["node_s"] for task in tasks.values())
    assert 0.5 < used / result["nodes"] <= 1.01
    assert list(tmp_path.glob("bftrain/live/*.sock")) == []


def _slots_idle_in(text: str) -> set[str]:
    """Return the slots that became idle, by lines that name one slot or, on a busy machine, several."""
    lines = re.findall(r"s  (slot.*) became idle: ", text)
    return {slot for line in lines for slot in NodeSet(line)}
