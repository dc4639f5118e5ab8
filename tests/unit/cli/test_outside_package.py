"""A third-party package brings a part for every port: each is found by name, listed, and used."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from bftrain import registry
from bftrain.live.model.site_config import SiteSettings
from bftrain.live.run.startup import check_launchers
from tests.helpers.in_process import CommandLine

MODULE = '''
"""A part for every port, as short as they can be."""

import numpy as np

from bftrain.ports import Availability
from bftrain.values.sharing import Shares
from bftrain.values.solution import Quality, Solution, Termination

used = []


class Solver:
    """Gives all it can to the first task."""

    name = "outside"

    def available(self):
        return Availability(ok=True, version="1.0")

    def solve(self, table, limits):
        used.append("solver")
        left, sizes = table.problem.pool, {}
        for task in table.problem.tasks:
            sizes[task.name] = min(task.max_nodes, left) if left >= task.min_nodes else 0
            left -= sizes[task.name]
        return Solution(sizes=sizes, value=table.value_of(sizes), bound=None, termination=Termination.HEURISTIC,
                        quality=Quality.FEASIBLE, solver=self.name)


def objective(task, sizes):
    used.append("objective")
    return np.sqrt(sizes)


class Admission:
    name = "outside"

    def __init__(self, max_tasks, most=2):
        self.most = most

    def choose(self, queue):
        used.append("admission")
        return list(queue)[: self.most]


class Placement:
    name = "outside"

    def give_up(self, held, count):
        return list(held)[-count:]

    def take(self, held, free, count):
        used.append("placement")
        return [node for nodes in free.values() for node in nodes][-count:]


def metric(run):
    used.append("metric")
    return len(run.tasks)


class Sharing:
    name = "outside"

    def share(self, problem):
        used.append("sharing")
        shares = {task.name: {} for task in problem.tasks}
        return Shares(policy=self.name, value=0.0, value_is="nothing", shares=shares, speeds=dict.fromkeys(shares, 0.0))


class Queue:
    """First come, first served."""

    name = "outside"

    def starts(self, cluster):
        used.append("queue_policy")
        free, started = cluster.free, []
        for job in cluster.waiting:
            if cluster.size[job] > free:
                break
            free -= cluster.size[job]
            started.append(job)
        return started


class Round:
    name = "outside"

    def priorities(self, contenders):
        used.append("rounds")
        return -contenders.submit_s


solver, placement, sharing = Solver(), Placement(), Sharing()


def queue_policy(options):
    return Queue()


def launcher(tell, hub):
    raise AssertionError("nothing is launched")


def scheduler(settings):
    raise AssertionError("it is not asked")


name, about = "outside", "A line a job: JOB START END NODE"


def recognises(head):
    return head.startswith(b"#outside")


def read(file, intake):
    used.append("reader")
    for number, line in file.lines():
        if not line.startswith("#"):
            intake.row(number)
            job, start, end, node = line.split()
            intake.job(job, intake.seconds(start), intake.seconds(end), node)
'''
TARGETS = {
    "solver": "solver",
    "objective": "objective",
    "admission": "Admission",
    "placement": "placement",
    "metric": "metric",
    "sharing": "sharing",
    "queue_policy": "queue_policy",
    "rounds": "Round",
    "launcher": "launcher",
    "scheduler": "scheduler",
    "reader": "",
}


@pytest.fixture
def used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Install the package; gives the list in which its parts take down that they were used."""
    (tmp_path / "outside_parts.py").write_text(MODULE)
    info = tmp_path / "outside_parts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-parts\nVersion: 1.0\n")
    lines = []
    for port, attribute in TARGETS.items():
        lines += [f"[bftrain.{port}]", f"outside = outside_parts{':' if attribute else ''}{attribute}"]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "outside_parts", raising=False)
    found: list[str] = import_module("outside_parts").used
    return found


def test_there_is_a_part_for_every_port() -> None:
    assert set(TARGETS) == set(registry.PORTS)


def test_the_doctor_lists_all_of_them(bftrain: CommandLine, used: list[str]) -> None:
    output = json.loads(bftrain("doctor", "--json").out)
    findings = (
        output if isinstance(output, list) else next(value for value in output.values() if isinstance(value, list))
    )
    ours = {one["kind"]: one["state"] for one in findings if one["name"] == "outside (outside-parts)"}
    assert ours == dict.fromkeys(TARGETS, "ok")
    assert used == []


def test_a_replay_is_made_of_them(bftrain: CommandLine, used: list[str], tmp_path: Path) -> None:
    log, tasks, folder = tmp_path / "log.npz", tmp_path / "tasks.toml", tmp_path / "result"
    assert bftrain("generate", "log", "-o", log, "--nodes", 8, "--days", 0.2).code == 0
    assert bftrain("tasks", "generate", "-o", tasks, "--count", 3).code == 0
    names = ("--solver", "--objective", "--placement", "--metrics")
    options = [word for name in names for word in (name, "outside")]
    ended = bftrain("replay", log, "--tasks", tasks, "-o", folder, *options, "--admission", "outside=1")
    assert ended.code == 0, ended.err
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["metrics"] == {"outside": 3.0}
    assert (summary["solver"], summary["objective"]) == ("outside", "outside")
    assert set(used) == {"solver", "objective", "admission", "placement", "metric"}
    competing = (folder / "decisions.csv").read_text().splitlines()[1:]
    assert all(row.split(",")[4] in {"0", "1"} for row in competing)


def test_rounds_and_shares_of_time(bftrain: CommandLine, used: list[str], tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.toml"
    tasks.write_text(
        '[[task]]\nname = "a"\nmax_nodes = 2\nmin_nodes = 2\nwork_samples = 900\ncurve = { nodes = [2], rate = [1] }\n'
    )
    ended = bftrain(
        "replay", "--cluster", "v100=2", "--tasks", tasks, "--round", 60, "--policy", "outside", "-o", tmp_path / "out"
    )
    assert ended.code == 0, ended.err
    problem = '{"nodes": {"a": 1}, "tasks": [{"name": "x", "speeds": {"a": 1}}]}'
    ended = bftrain("solve", "-", "--policy", "outside", stdin=problem)
    assert ended.code == 0, ended.err
    assert set(used) == {"rounds", "sharing"}


def test_records_are_read_and_a_main_scheduler_is_simulated(
    bftrain: CommandLine, used: list[str], tmp_path: Path
) -> None:
    records, jobs = tmp_path / "jobs.txt", tmp_path / "jobs.swf"
    records.write_text("#outside\n1 1700000000 1700000600 n1\n2 1700000300 1700000900 n2\n")
    ended = bftrain("import", records, "-o", tmp_path / "log.npz")
    assert ended.code == 0, ended.err
    lines = [f"{n} {n * 10} 0 50 2 -1 -1 2 60 -1 1 1 1 -1 1 1 -1 -1\n" for n in (1, 2, 3)]
    jobs.write_text("; MaxNodes: 4\n" + "".join(lines))
    ended = bftrain("schedule", jobs, "--policy", "outside", "-o", tmp_path / "schedule")
    assert ended.code == 0, ended.err
    assert set(used) == {"reader", "queue_policy"}


def test_a_live_run_takes_launcher_and_scheduler_by_name(used: list[str]) -> None:
    check_launchers(SiteSettings(launcher="outside", launchers=("outside",)))
    assert registry.parts("scheduler")["outside"].origin == "outside-parts"
    with pytest.raises(AssertionError, match="it is not asked"):
        registry.load("scheduler", "outside")({})
    assert used == []
