"""The page on adding a scheduler: its example is one, and keeps pilots under an OAR that is made up."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bftrain import registry
from bftrain.cli.doctor import examine
from bftrain.live.schedulers.hook_spool import read_line
from bftrain.live.schedulers.pilot_backend import Command, PilotBackend, PilotState
from bftrain.live.schedulers.pilot_manager import PilotJobs
from bftrain.live.schedulers.port import AgentOrder, Allowed, News, Scheduler, Site
from tests.unit.core import plugins

PAGE = (Path(__file__).parents[3] / "docs" / "adding" / "scheduler.md").read_text()
CODE = re.findall(r"<!-- file: oar\.py -->\n```python\n(.*?)```", PAGE, re.DOTALL)[0]


class FakeOar:
    """Answers oarsub, oarstat, oardel and oarnodes."""

    def __init__(self, *nodes: str) -> None:
        self.nodes = nodes
        self.jobs: dict[str, dict[str, Any]] = {}
        self.scripts: list[str] = []

    async def run(self, command: Command) -> str:
        name, *words = command.argv
        if name == "oarsub":
            assert words[:2] == ["-t", "besteffort"]
            self.scripts.append(shlex.split(words[-1])[-1])
            about = {"name": words[words.index("-n") + 1], "assigned_network_address": [], "startTime": 0}
            self.jobs[str(len(self.jobs) + 1)] = about | {"state": "Waiting", "walltime": 3600}
            return f"OAR_JOB_ID={len(self.jobs)}\n"
        held = {
            node for job in self.jobs.values() if job["state"] == "Running" for node in job["assigned_network_address"]
        }
        if name == "oarnodes":
            rows = {"state": "Alive", "jobs": None}
            return json.dumps({str(at): rows | {"network_address": node} for at, node in enumerate(self.nodes)})
        if name == "oardel":
            for id_ in words:
                self.jobs[id_]["state"] = "Error"
            return ""
        free = iter([node for node in self.nodes if node not in held])
        for job in self.jobs.values():
            if job["state"] == "Waiting" and (node := next(free, None)):
                job |= {"state": "Running", "assigned_network_address": [node], "startTime": 1795690717}
        return json.dumps(self.jobs) if self.jobs else ""

    def count(self, state: str) -> int:
        return sum(job["state"] == state for job in self.jobs.values())


@pytest.fixture
def oar(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a module
    """Install the example as the package of its entry point would."""
    ((name, target),) = re.findall(r"bftrain\.scheduler\"\]\n(\w+) = \"([\w.:]+)\"$", PAGE, re.MULTILINE)
    module = ModuleType(target.partition(":")[0])
    monkeypatch.setitem(sys.modules, "my_package", ModuleType("my_package"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(CODE, vars(module))  # noqa: S102 - our own page
    plugins.register(monkeypatch, ("scheduler", name, target))
    return module


def test_the_example_is_a_small_plugin_that_is_found(oar: Any) -> None:  # noqa: ANN401 - a module
    assert len(CODE.splitlines()) < 250
    assert registry.load("scheduler", "oar") is oar.make
    (shown,) = [found for found in examine() if found.kind == "scheduler" and "oar" in found.name]
    assert shown.state.value == "ok"
    wanted = {name for name in vars(PilotBackend) if not name.startswith("_")} | set(PilotBackend.__annotations__)
    assert [name for name in wanted if not hasattr(oar.Oar, name)] == []
    assert "| `name`, `avoids` |" in PAGE
    listed = set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE))
    methods = {name for port in (PilotBackend, Scheduler) for name in vars(port) if not name.startswith("_")}
    assert {name for name in methods if callable(getattr(PilotBackend, name, getattr(Scheduler, name, None)))} <= listed


def test_the_line_of_a_hook_is_one() -> None:
    (line,) = re.findall(r"^bftrain1 .*$", PAGE, re.MULTILINE)
    heard = read_line(line, 0.0)
    assert heard is not None
    assert (heard.what, heard.job, heard.nodes) == ("end", "4711", ("nid0001", "nid0002", "nid0003"))


def test_the_example_keeps_pilots(oar: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401 - a module
    monkeypatch.setattr("bftrain.live.schedulers.pilot_manager._BETWEEN_S", 0.001)
    fake = FakeOar("n1", "n2", "n3")
    monkeypatch.setattr(oar, "CommandRunner", lambda **_: fake.run)
    table = {"pending": 1, "lengths_s": [3600], "poll_s": 0.01, "submits_per_min": 100_000}
    scheduler: PilotJobs = registry.load("scheduler", "oar")(table, Site(name="t", folder=tmp_path))
    ours: set[str] = set()

    async def play() -> None:
        wait_for_members = asyncio.Event()

        def post(one: News) -> None:
            assert isinstance(one, Allowed)
            ours.update(one.nodes)
            if ours == {"n1", "n2", "n3"}:
                wait_for_members.set()

        running = asyncio.create_task(scheduler.run(post, AgentOrder(argv=("agent", "{node}"))))
        async with asyncio.timeout(20):
            await wait_for_members.wait()
            assert await scheduler.look() == ours
            await scheduler.leave()
        running.cancel()

    asyncio.run(play())
    assert fake.count("Running") == fake.count("Waiting") == 0
    assert all(script.splitlines()[-1] == 'exec agent "$node"' for script in fake.scripts)
    assert set(oar.STATES.values()) >= {PilotState.WAITING, PilotState.RUNNING, PilotState.STOPPED, PilotState.TAKEN}
    assert shutil.which("oarsub") or not scheduler.available().ok
