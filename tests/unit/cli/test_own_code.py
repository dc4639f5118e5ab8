"""Code of users: a package with a part for every port, and files of one's own; and what happens if they raise."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from bftrain import generate_log, generate_mix, registry, save_log, save_tasks
from tests.helpers import plugins
from tests.helpers.campaigns import CAMPAIGN_STRETCH
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


solver, sharing = Solver(), Sharing()


def queue_policy(options):
    return Queue()


def launcher(tell, hub):
    raise AssertionError("nothing is launched")


def scheduler(settings, site):
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
    "metric": "metric",
    "sharing": "sharing",
    "queue_policy": "queue_policy",
    "rounds": "Round",
    "launcher": "launcher",
    "scheduler": "scheduler",
    "reader": "",
}
REPLAY = "replay log.npz --tasks tasks.toml -o out"
ROUNDS = "rounds --cluster 4 --tasks gang.toml --round 60"
GANG = '[[task]]\nname = "a"\nmax_nodes = 1\nwork_samples = 100\ncurve = { nodes = [1], rate = [1.0] }\n'
JOB = "1 1 0 100 1 -1 -1 1 200 -1 1 1 1 -1 1 -1 -1 -1\n"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with inputs, in which commands run."""
    monkeypatch.chdir(tmp_path)
    save_log(generate_log(12, 0.1, 3), tmp_path / "log.npz")
    save_tasks(generate_mix(3, 3), tmp_path / "tasks.toml")
    (tmp_path / "gang.toml").write_text(GANG)
    (tmp_path / "jobs.swf").write_text(f"; MaxNodes: 4\n; MaxProcs: 4\n{JOB}", encoding="utf-8")
    return tmp_path


@pytest.fixture
def used(place: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Install the package; gives the list in which its parts take down that they were used."""
    parts = {f"{port}.outside": name for port, name in TARGETS.items()}
    plugins.install(monkeypatch, place, "outside_parts", MODULE, parts)
    found: list[str] = import_module("outside_parts").used
    return found


def test_the_doctor_lists_a_part_for_every_port(bftrain: CommandLine, used: list[str]) -> None:
    assert {*TARGETS, "placement"} == set(registry.PORTS), "placements are built in"
    findings = json.loads(bftrain("doctor", "--json").out)
    ours = {one["kind"]: one["state"] for one in findings if one["name"] == "outside (outside-parts)"}
    assert (ours, used) == (dict.fromkeys(TARGETS, "ok"), [])


def test_a_replay_is_made_of_them(bftrain: CommandLine, used: list[str], place: Path) -> None:
    names = ("--solver", "--objective", "--metrics")
    options = [word for name in names for word in (name, "outside")]
    ended = bftrain(*REPLAY.split(), *options, "--admission", "outside=1")
    assert ended.code == 0, ended.err
    summary = json.loads((place / "out" / "summary.json").read_text())
    assert (summary["solver"], summary["objective"], summary["metrics"]) == ("outside", "outside", {"outside": 3.0})
    assert set(used) == {"solver", "objective", "admission", "metric"}
    competing = (place / "out" / "decisions.csv").read_text().splitlines()[1:]
    assert all(row.split(",")[4] in {"0", "1"} for row in competing)


def test_all_other_commands_use_them(bftrain: CommandLine, used: list[str], place: Path) -> None:
    (place / "jobs.txt").write_text("#outside\n1 1700000000 1700000600 n1\n2 1700000300 1700000900 n2\n")
    problem = '{"nodes": {"a": 1}, "tasks": [{"name": "x", "speeds": {"a": 1}}]}'
    for command, part in (
        (f"{ROUNDS} --policy outside", "rounds"),
        ("solve - --policy outside", "sharing"),
        ("import jobs.txt -o new.npz", "reader"),
        ("schedule jobs.swf --policy outside -o schedule", "queue_policy"),
    ):
        ended = bftrain(*command.split(), stdin=problem)
        assert (ended.code, set(used)) == (0, {part}), ended.err
        used.clear()


def test_a_live_run_takes_launcher_and_scheduler_by_name(bftrain: CommandLine, used: list[str], place: Path) -> None:
    (place / "site.toml").write_text(f'launcher = "outside"\nstate = "{place}/s"\n[scheduler]\nname = "outside"\n')
    ended = bftrain("live", "--config", "site.toml")
    words = "scheduler 'outside': cannot be created: AssertionError: it is not asked"
    assert (ended.code, words in ended.err, used) == (3, True, [])


MINE = """\
def fail(*anything, **more):
    return [][7]
class Raising:
    name = "raising"
    choose = admit = take = give_up = priorities = starts = solve = share = read = fail
    def __init__(self, *options): pass
    def recognises(self, head): return True
    def available(self):
        from bftrain import Availability
        return Availability(ok=True)
class Unmakeable:
    def __init__(self, *options): fail()
raising = Raising()
"""
LINE = ".py:2: return [][7]"


@pytest.mark.parametrize(
    ("command", "where"),
    [
        (f"{REPLAY} --objective mine.py:fail", "objective 'mine.py:fail', task '"),
        (f"{REPLAY} --metrics mine.py:Unmakeable", "metric 'mine.py:Unmakeable': cannot be created"),
        (f"{REPLAY} --admission mine.py:Raising", "admission 'raising': raised"),
        (f"{ROUNDS} --policy mine.py:Raising", "policy 'raising'"),
        (f"{ROUNDS} --policy mine.py:Unmakeable", "policy 'mine.py:Unmakeable': cannot be created"),
        (f"{ROUNDS} --admission mine.py:Unmakeable", "admission 'mine.py:Unmakeable': cannot be created"),
        ("schedule jobs.swf -o out --policy mine.py:Raising", "policy 'raising', "),
        ("schedule jobs.swf -o out --policy mine.py:Unmakeable", "policy 'mine.py:Unmakeable': cannot be created"),
        (f"{REPLAY} --objective of_plugin", "objective 'of_plugin', task '"),
        (f"{ROUNDS} --policy of_sharing", "policy 'raising', round 0 at 0 s: raised"),
        ("schedule jobs.swf -o out --policy of_plugin", "policy 'raising', "),
        ("import jobs.swf -o out.npz --format of_plugin", "reader 'raising', jobs.swf: raised"),
    ],
)
def test_an_exception_is_one_line_with_the_place_in_the_users_code(
    bftrain: CommandLine, place: Path, monkeypatch: pytest.MonkeyPatch, command: str, where: str
) -> None:
    (place / "mine.py").write_text(MINE, encoding="utf-8")
    parts = {
        "objective.of_plugin": "fail",
        "sharing.of_sharing": "raising",
        "queue_policy.of_plugin": "Raising",
        "reader.of_plugin": "raising",
    }
    plugins.install(monkeypatch, place, "own_plugins", MINE, parts)
    ended = bftrain(*command.split())
    (error,) = [line for line in ended.err.splitlines() if line.startswith("bftrain: ")]
    assert (ended.code, "Traceback" in ended.err) == (3, False)
    for words in (where, "IndexError: list index out of range, at ", LINE, "; -v prints the whole traceback"):
        assert words in error
    assert not (place / "out" / "summary.json").exists()
    more = bftrain(*command.split(), "-v")
    assert (more.code, "Traceback (most recent call last)" in more.err) == (3, True)
    assert more.err.splitlines()[-1] == error.removesuffix("; -v prints the whole traceback")


@pytest.mark.parametrize("command", [f"{REPLAY} --baseline equal-share", f"{ROUNDS} -o out"])
def test_a_metric_that_raises_costs_its_numbers_and_not_the_result(
    bftrain: CommandLine, place: Path, command: str
) -> None:
    (place / "mine.py").write_text(MINE, encoding="utf-8")
    ended = bftrain(*command.split(), "--metrics", f"{CAMPAIGN_STRETCH},mine.py:fail", "-q")
    warning, error = ended.err.splitlines()
    assert (ended.code, "finished" in ended.out, "metric 'fail'" in error) == (3, True, True)
    assert warning.startswith("warning: metric 'fail': raised IndexError: list index out of range, at ")
    summary = json.loads((place / "out" / "summary.json").read_text())
    assert (summary["complete"], summary["metrics"]["fail"]) == (True, None)
    assert summary["metrics"]["campaigns"] is not None


def test_after_a_solver_that_raises_the_fallback_decides(
    bftrain: CommandLine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins.install(monkeypatch, place, "own_solver", MINE, {"solver.raising": "raising"})
    ended = bftrain(*REPLAY.split(), "--solver", "raising")
    assert ended.code == 0, ended.err
    assert f"own_solver{LINE}" in ended.err
