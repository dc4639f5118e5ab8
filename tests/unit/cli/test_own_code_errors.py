"""An exception in one's own code is one message with file, line and source; -v prints the whole traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bftrain import generate_log, generate_mix, registry, save_log, save_tasks
from bftrain_datasets.workloads.task_generators import TaskShape
from tests.helpers.in_process import CommandLine
from tests.unit.core.plugins import register

MINE = """\
def fail(*anything, **more):
    return [][7]

class Raising:
    name = "raising"
    choose = admit = take = give_up = priorities = starts = solve = fail
    def __init__(self, *options): pass
    def recognises(self, head): return True
    read = fail

class Unmakeable:
    def __init__(self, *options): fail()

raising = Raising()
"""
LINE = "mine.py:2: return [][7]"
REPLAY = "replay log.npz --tasks tasks.toml -o out"
ROUNDS = "replay --cluster 4 --tasks gang.toml --round 60"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with inputs and parts that raise, in which commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    save_log(generate_log(12, 0.1, 3), tmp_path / "log.npz")
    save_tasks(generate_mix(5, 3, shape=TaskShape(max_nodes=6, work_samples=3e7)), tmp_path / "tasks.toml")
    curve = "curve = { nodes = [1], rate = [1.0] }"
    (tmp_path / "gang.toml").write_text(f'[[task]]\nname = "a"\n{curve}\nmax_nodes = 1\nwork_samples = 100\n')
    job = "1 1 0 100 1 -1 -1 1 200 -1 1 1 1 -1 1 -1 -1 -1\n"
    (tmp_path / "jobs.swf").write_text(f"; MaxProcs: 4\n{job}", encoding="utf-8")
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "where"),
    [
        (f"{REPLAY} --objective mine.py:fail", "objective 'mine.py:fail', task '"),
        (f"{REPLAY} --metrics mine.py:Unmakeable", "metric 'mine.py:Unmakeable': cannot be created"),
        (f"{REPLAY} --admission mine.py:Raising", "admission 'raising': raised"),
        (f"{REPLAY} --admission mine.py:Unmakeable", "admission 'mine.py:Unmakeable': cannot be created"),
        (f"{ROUNDS} --policy mine.py:Raising", "policy 'raising'"),
        (f"{ROUNDS} --policy mine.py:Unmakeable", "policy 'mine.py:Unmakeable': cannot be created"),
        (f"{ROUNDS} --admission mine.py:Raising", "admission 'raising': raised"),
        ("schedule jobs.swf -o out --policy mine.py:Raising", "policy 'raising', "),
        ("schedule jobs.swf -o out --policy mine.py:Unmakeable", "policy 'mine.py:Unmakeable': cannot be created"),
    ],
)
def test_files_of_ones_own(bftrain: CommandLine, place: Path, command: str, where: str) -> None:
    check(bftrain, command, where)
    assert not (place / "out" / "summary.json").exists()


@pytest.mark.parametrize(
    ("port", "attribute", "command", "where"),
    [
        ("objective", "fail", f"{REPLAY} --objective raising", "objective 'raising', task '"),
        ("placement", "raising", f"{REPLAY} --placement raising", "placement 'raising': raised"),
        ("admission", "Raising", f"{REPLAY} --admission raising", "admission 'raising': raised"),
        ("rounds", "Raising", f"{ROUNDS} --policy raising", "policy 'raising'"),
        ("sharing", "sharing", f"{ROUNDS} --policy raising", "policy 'sharing', round 0 at 0 s: raised"),
        ("queue_policy", "Raising", "schedule jobs.swf -o out --policy raising", "policy 'raising', "),
        ("reader", "raising", "import jobs.swf -o out.npz --format raising", "reader 'raising', jobs.swf: raised"),
    ],
)
def test_plug_ins(
    bftrain: CommandLine,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    port: registry.Port,
    attribute: str,
    command: str,
    where: str,
) -> None:
    name = f"mine_{port}"
    sharing = 'class Sharing:\n    name = "sharing"\n    share = fail\nsharing = Sharing()\n'
    (place / f"{name}.py").write_text(f"{MINE}{sharing}", encoding="utf-8")
    register(monkeypatch, (port, "raising", f"{name}:{attribute}"))
    check(bftrain, command, where, LINE.replace("mine", name))


def check(bftrain: CommandLine, command: str, where: str, line: str = LINE) -> None:
    ended = bftrain(*command.split())
    assert ended.code == 3  # for every part
    (said,) = [each for each in ended.err.splitlines() if each.startswith("bftrain: ")]
    assert where in said
    assert "IndexError" in said
    assert ": list index out of range, at " in said
    assert line in said
    assert said.endswith("; -v prints the whole traceback")
    assert "Traceback" not in ended.err
    more = bftrain(*command.split(), "-v")
    assert more.code == ended.code
    assert "Traceback (most recent call last)" in more.err
    assert more.err.splitlines()[-1] == said.removesuffix("; -v prints the whole traceback")


@pytest.mark.parametrize(
    "command",
    [
        f"{REPLAY} --quick",
        f"{REPLAY} --baseline equal-share",
        "replay --cluster 4 --tasks gang.toml -o out",
        f"{ROUNDS} -o out",
    ],
)
def test_a_metric_that_raises_costs_its_numbers_and_not_the_result(
    bftrain: CommandLine, place: Path, command: str
) -> None:
    ended = bftrain(*command.split(), "--metrics", "campaigns,mine.py:fail", "-q")
    assert ended.code == 3
    assert "finished" in ended.out
    warning, *more, error = ended.err.splitlines()
    assert more == []
    said = f"metric 'fail': raised IndexError: list index out of range, at {place}/{LINE}; its numbers are null"
    assert warning == f"warning: {said}"
    what = "metric 'fail': gave no numbers; all else of the result stands"
    assert error == f"bftrain: {what}; -v prints the whole traceback"
    summary = json.loads((place / "out" / "summary.json").read_text())
    assert summary["complete"] is True
    assert summary["metrics"]["fail"] is None
    assert summary["metrics"]["campaigns"] is not None
    if "--round" not in command:
        assert said in summary["warnings"]
    again = bftrain(*command.split(), "--metrics", "mine.py:fail", "-v", "--overwrite")
    assert "Traceback (most recent call last)" in again.err


def test_a_solver_that_raises_is_named_with_its_line(
    bftrain: CommandLine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver = """
    def available(self):
        from bftrain.ports import Availability
        return Availability(ok=True)
    solve = fail
"""
    text = f'{MINE}\nclass Solver:\n    name = "raising"\n    couples = False{solver}\nsolver = Solver()\n'
    (place / "mine_solver.py").write_text(text, encoding="utf-8")
    register(monkeypatch, ("solver", "raising", "mine_solver:solver"))
    ended = bftrain(*REPLAY.split(), "--solver", "raising", "--quick")
    assert ended.code == 0
    assert "raised IndexError: list index out of range, at " in ended.err
    assert LINE.replace("mine", "mine_solver") in ended.err
