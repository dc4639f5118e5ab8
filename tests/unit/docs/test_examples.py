"""The solver, the reader and the scheduler on the page about parts, installed as they stand there, work."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from bftrain import ImportOptions, import_logs, registry
from bftrain.live.schedulers.base import AgentOrder, Allowed, News, Scheduler, Site
from tests.helpers import plugins
from tests.helpers import solver_conformance as conformance
from tests.helpers.in_process import CommandLine
from tests.helpers.pages import ROOT, page

NAMES = {"solver": "first-served", "reader": "tiny", "scheduler": "oar"}
FILES = {"solver": "first_served.py", "reader": "tiny.py", "scheduler": "oar.py"}
GUIDE = page(ROOT / "docs" / "how-to" / "parts.md")


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Install the examples, with the entry points that their pages show."""
    for port, name in NAMES.items():
        example = ROOT / "examples" / f"{port}s" / FILES[port]
        shown = [block.text for block in GUIDE.blocks if block.one("file") == FILES[port]]
        (code,) = shown or [example.read_text(encoding="utf-8")]
        pattern = rf"bftrain\.{port}\"\]\n{name} = \"my_package\.\w+:?(\w*)\"$"
        (attribute,) = re.findall(pattern, GUIDE.text, re.MULTILINE)
        plugins.install(monkeypatch, tmp_path, f"example_of_a_{port}", code, {f"{port}.{name}": attribute})


@pytest.mark.usefixtures("_installed")
def test_the_doctor_finds_all_of_them(bftrain: CommandLine) -> None:
    found = {(row["kind"], row["name"].split()[0]): row for row in json.loads(bftrain("doctor", "--json").out)}
    assert {port: found[port, name]["state"] for port, name in NAMES.items()} == dict.fromkeys(NAMES, "ok")


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.name)
def test_the_solver_passes_the_suite_for_solvers(case: conformance.SolverCheck) -> None:
    case.check(registry.load("solver", "first-served"), optimal=False)


@pytest.mark.usefixtures("_installed")
def test_the_reader_reads(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        "#tiny 1\n"
        "1 main 1700000000 1700000100 a+b\n"
        "2 main 1700000150 - b\n"
        "3 idle 1700000100 1700000150 a\n"
        "4 main - - c\n"
        "5 main today 1700000100 a\n"
        "6 main\n"
        "7 main 1700000200 1700000300 c\n"
    )
    found = import_logs(tmp_path / "log", options=ImportOptions(preemptible=("idle",)))
    assert found.format == "tiny"
    assert found.rows.aside == {"preemptible": 1, "no_usage": 1, "bad_time": 1, "malformed": 1}
    assert (found.log.node_names, found.log.idle_node_s) == (("a", "b", "c"), 200 + 50 + 200)


class FakeOar:
    """Answers oarsub, oarstat, oardel and oarnodes."""

    def __init__(self, *nodes: str) -> None:
        self.nodes = nodes
        self.jobs: dict[str, dict[str, Any]] = {}
        self.scripts: list[str] = []

    async def run(self, command: Any) -> str:  # noqa: ANN401 - a command of the example
        name, *words = command.argv
        if name == "oarsub":
            assert words[:2] == ["-t", "besteffort"]
            self.scripts.append(shlex.split(words[-1])[-1])
            about = {"name": words[words.index("-n") + 1], "assigned_network_address": [], "startTime": 0}
            self.jobs[str(len(self.jobs) + 1)] = about | {"state": "Waiting", "walltime": 3600}
            return f"OAR_JOB_ID={len(self.jobs)}\n"
        running = [job for job in self.jobs.values() if job["state"] == "Running"]
        if name == "oarnodes":
            rows = {"state": "Alive", "jobs": None}
            return json.dumps({str(at): rows | {"network_address": node} for at, node in enumerate(self.nodes)})
        if name == "oardel":
            for id_ in words:
                self.jobs[id_]["state"] = "Error"
            return ""
        busy = {node for job in running for node in job["assigned_network_address"]}
        free = iter([node for node in self.nodes if node not in busy])
        for job in self.jobs.values():
            if job["state"] == "Waiting" and (node := next(free, None)):
                job |= {"state": "Running", "assigned_network_address": [node], "startTime": 1795690717}
        return json.dumps(self.jobs) if self.jobs else ""


@pytest.mark.usefixtures("_installed")
def test_the_scheduler_keeps_pilots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeOar("n1", "n2", "n3")
    monkeypatch.setattr("bftrain.live.schedulers.pilots.CommandRunner", lambda **_: fake.run)
    table = {"pending": 1, "lengths_s": [3600], "poll_s": 0.01, "submits_per_min": 100_000}
    scheduler: Scheduler = registry.load("scheduler", "oar")(table, Site(name="t", folder=tmp_path))
    ours: set[str] = set()

    async def play() -> None:
        all_nodes = asyncio.Event()

        def post(one: News) -> None:
            assert isinstance(one, Allowed)
            ours.update(one.nodes)
            if ours == {"n1", "n2", "n3"}:
                all_nodes.set()

        running = asyncio.create_task(scheduler.run(post, AgentOrder(argv=("agent", "{node}"))))
        async with asyncio.timeout(60):
            await all_nodes.wait()
            await scheduler.leave()
        running.cancel()

    asyncio.run(play())
    assert {job["state"] for job in fake.jobs.values()} == {"Error"}
    assert all(script.splitlines()[-1] == 'exec agent "$node"' for script in fake.scripts)
