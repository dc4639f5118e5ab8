"""``bftrain submit``: tasks from words or a file, waiting for them, and what is refused."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.in_process import CommandLine
from tests.helpers.live_inside import World, ourselves
from tests.helpers.live_thread import LiveThread, live_thread

ME = ourselves().user


def kept(run: LiveThread, name: str) -> Any:  # noqa: ANN401 - a Kept
    return run.do(lambda inside: inside.daemon.task_store.find(name))


def test_a_script_is_handed_in_with_its_words(bftrain: CommandLine, run: LiveThread, tmp_path: Path) -> None:
    ended = bftrain("submit", "train.py", "--nodes", "1:8", "--", "--steps", "5")
    assert (ended.code, ended.out, ended.err) == (0, "train: submitted as #1\n", "")
    task = kept(run, "train")
    assert task.run.argv == (str(tmp_path / "train.py"), "--steps", "5")
    assert (task.spec.min_nodes, task.spec.max_nodes, task.run.cwd, task.user) == (1, 8, str(tmp_path), ME)


def test_everything_can_be_said(
    bftrain: CommandLine, run: LiveThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLOUR", "blue")
    words = ("--nodes", "3", "--name", "n", "--launcher", "inside", "--work", "50", "--weight", "2", "--campaign", "c")
    folders = ("--folder", "own", "--cwd", "/")
    ended = bftrain("submit", "make", *words, *folders, "--env", "A=b=c", "--env", "COLOUR", "--json", "--", "-j")
    assert ended.code == 0, ended.err
    (printed,) = json.loads(ended.out)
    assert (printed["name"], printed["number"], printed["state"]) == ("n", 1, "waiting")
    task = kept(run, "n")
    assert task.run.argv == ("make", "-j")
    assert dict(task.run.env) == {"A": "b=c", "COLOUR": "blue"}
    assert (task.run.folder, task.run.cwd) == (str(tmp_path / "own"), "/")
    assert (task.spec.min_nodes, task.spec.max_nodes, task.spec.work_samples) == (3, 3, 50.0)
    assert (task.spec.weight, task.spec.campaign) == (2.0, "c")


def test_how_a_program_says_that_it_is_finished_reaches_its_launcher(
    bftrain: CommandLine, run: LiveThread, tmp_path: Path
) -> None:
    said = ("--finish-code", "7", "--finish-file", "out/all.done", "--stall-limit", "60", "--work", "500")
    assert bftrain("submit", "make", "--nodes", "1", *said).code == 0
    (tmp_path / "one.toml").write_text(
        'command = "make"\nname = "two"\nnodes = 1\nfinish_code = 1\nfinish_file = "done"\nstall_limit_s = 0\n'
    )
    assert bftrain("submit", "one.toml").code == 0
    assert bftrain("submit", "make", "--nodes", "1", "--name", "three").code == 0
    jobs = run.do(lambda inside: inside.world.jobs)
    more = ("finish_code", "finish_file", "work_samples", "stall_limit_s")
    shown_fields = {name: {key: job[key] for key in more if key in job} for name, job in jobs.items()}
    assert shown_fields == {
        "make": {"finish_code": 7, "finish_file": "out/all.done", "work_samples": 500.0, "stall_limit_s": 60.0},
        "two": {"finish_code": 1, "finish_file": "done", "stall_limit_s": 0.0},
        "three": {},
    }, "what says nothing is left out, for launchers that do not know of it"
    assert (kept(run, "make").run.stall_limit_s, kept(run, "three").run.stall_limit_s) == (60.0, None)


def test_a_grid_is_a_task_for_each_combination(bftrain: CommandLine, run: LiveThread, tmp_path: Path) -> None:
    grid = ("--grid", "lr=0.1,1e-3", "--grid", "net=a/b")
    ended = bftrain("submit", "train.py", "--nodes", "1", "--folder", "own", *grid, "--", "--out", "run-{lr}")
    assert ended.out == "train-lr0.1-neta-b: submitted as #1\ntrain-lr1e-3-neta-b: submitted as #2\n", ended.err
    task = kept(run, "#2")
    assert task.run.argv[1:] == ("--out", "run-1e-3", "--net", "a/b")
    assert (task.run.folder, task.spec.campaign) == (str(tmp_path / "own" / task.name), "train")
    for odd in ("lr", "lr=1,", "-x=1"):
        ended = bftrain("submit", "train.py", "--nodes", "1", "--grid", odd)
        assert (ended.code, f"'{odd}' is not NAME=VALUE,VALUE" in ended.err) == (2, True)


@pytest.mark.parametrize("nodes", ["8:4", "x"])
def test_wrong_sizes_name_the_option(bftrain: CommandLine, run: LiveThread, nodes: str) -> None:
    del run
    ended = bftrain("submit", "train.py", "--nodes", nodes)
    assert (ended.code, ended.err.startswith(f"bftrain: --nodes: '{nodes}' ")) == (3, True), ended.err


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (("lr=0.1", "lr=0.01"), "'lr' is given twice"),
        (("net=a/b,a:b",), "two tasks would be called 'train-neta-b'"),
        (("lr=0.1,0.1",), "two tasks would be called 'train-lr0.1'"),
        (("x=" + ",".join("y" * 100 + str(number) for number in range(3)),), "two tasks would be called 'train-xyyy"),
    ],
)
def test_no_task_of_a_grid_is_lost(grid: tuple[str, ...], words: str, bftrain: CommandLine, run: LiveThread) -> None:
    ended = bftrain("submit", "train.py", "--nodes", "1", *(word for one in grid for word in ("--grid", one)))
    assert (ended.code, words in " ".join(ended.err.split())) == (2, True), ended.err
    assert run.do(lambda inside: inside.daemon.task_store.next_number) == 1


def test_a_task_of_a_grid_has_a_valid_name_for_any_script(
    bftrain: CommandLine, run: LiveThread, tmp_path: Path
) -> None:
    (tmp_path / "_fit.py").touch()
    ended = bftrain("submit", "_fit.py", "--nodes", "1", "--grid", "lr=1")
    assert (ended.code, ended.out) == (0, "fit-lr1: submitted as #1\n"), ended.err
    assert kept(run, "#1").spec.name == "fit-lr1"


def test_a_file_of_tasks_is_handed_in(bftrain: CommandLine, run: LiveThread, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.py").write_text("")
    (tmp_path / "jobs" / "two.toml").write_text(
        """
[[task]]
name = "one"
script = "a.py"
args = ["-x"]
nodes = "1:4"
profile = "resnet18"
deadline = 2030-01-31T18:00:00Z
folder = "one"
env = { A = "1" }

[[task]]
command = "true"
max_nodes = 2
curve = { nodes = [1, 2], rate = [10.0, 18.0] }
deadline = 2000000000
stop_grace_s = 3
"""
    )
    ended = bftrain("submit", "jobs/two.toml")
    assert (ended.code, ended.out) == (0, "one: submitted as #1\ntrue: submitted as #2\n"), ended.err
    one, two = kept(run, "one"), kept(run, "true")
    assert one.run.argv == (str(tmp_path / "jobs" / "a.py"), "-x")
    assert (one.run.folder, one.run.cwd) == (str(tmp_path / "jobs" / "one"), str(tmp_path / "jobs"))
    assert one.spec.deadline_s == 1896112800.0
    assert (one.guessed, two.guessed, two.spec.deadline_s, two.run.stop_grace_s) == (False, False, 2e9, 3.0)
    assert two.spec.curve.rate == (10.0, 18.0)


def test_words_and_options_change_the_task_of_a_file(bftrain: CommandLine, run: LiveThread, tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text('script = "train.py"\nargs = ["-a"]\nnodes = "1:2"\n')
    assert bftrain("submit", "one.toml", "--nodes", "2:6", "--name", "x", "--", "-b").code == 0
    task = kept(run, "x")
    assert (task.run.argv[1:], task.spec.max_nodes) == (("-a", "-b"), 6)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nothing.py", "--nodes", "1:2"), 3, "there is no such file"),
        (("train.py",), 3, "the number of nodes is missing (such as --nodes 1:8)"),
        (("train.py", "--nodes", "x"), 3, "'x' is not MIN:MAX"),
        (("train.py", "--nodes", "3:2"), 3, "'3:2' is not MIN:MAX"),
        (("train.py", "--nodes", "1:2", "--name", "-x"), 3, "letters, digits"),
        (("train.py", "--nodes", "1:2", "--launcher", "nativ"), 3, "'nativ'"),
        (("train.py", "--nodes", "1:2", "--env", "NOT_SET_HERE"), 2, "is not set here"),
        (("two.toml", "--", "x"), 2, "arguments need exactly one"),
        (("two.toml", "--name", "x"), 2, "a name needs exactly one"),
        (("none.toml",), 3, "none.toml"),
        (("bad.toml",), 3, "not valid TOML"),
        (("odd.toml",), 3, "'x' is outside the [[task]] tables"),
        (("key.toml",), 3, "did you mean 'nodes'?"),
        (("both.toml",), 3, "either script or command"),
        (("args.toml",), 3, "must be a list of texts"),
        (("gone.toml",), 3, "there is no file"),
        (("twice.toml",), 3, "profile and curve are both given"),
        (("when.toml",), 3, "deadline: must be a time"),
        (("type.toml",), 3, "stop_grace_s"),
        (("weight.toml",), 3, "weight"),
        (("unknown.toml",), 3, "profile"),
    ],
)
def test_what_cannot_be_handed_in_is_said(
    words: tuple[str, ...], code: int, said: str, bftrain: CommandLine, run: LiveThread, tmp_path: Path
) -> None:
    files = {
        "two": '[[task]]\ncommand = "a"\nnodes = "1"\n[[task]]\ncommand = "b"\nnodes = "1"\n',
        "bad": "x = \n",
        "odd": 'x = 1\n[[task]]\ncommand = "a"\n',
        "key": 'command = "a"\nnode = "1"\n',
        "both": 'command = "a"\nscript = "train.py"\nnodes = "1"\n',
        "args": 'command = "a"\nargs = [1]\nnodes = "1"\n',
        "gone": 'script = "gone.py"\nnodes = "1"\n',
        "twice": 'command = "a"\nnodes = "1"\nprofile = "resnet18"\ncurve = { nodes = [1], rate = [1.0] }\n',
        "when": 'command = "a"\nnodes = "1"\ndeadline = "soon"\n',
        "type": 'command = "a"\nnodes = "1"\nstop_grace_s = "long"\n',
        "weight": 'command = "a"\nnodes = "1"\nweight = "heavy"\n',
        "unknown": 'command = "a"\nnodes = "1"\nprofile = "resnet81"\n',
    }
    for name, text in files.items():
        (tmp_path / f"{name}.toml").write_text(text)
    ended = bftrain("submit", *words)
    assert (ended.code, ended.out) == (code, ""), ended.err
    assert said in ended.err
    assert run.do(lambda inside: inside.daemon.task_store.next_number) == 1


@pytest.mark.parametrize("words", [("./x.sh",), ("one.toml",), ("x.sh",), ("echo",)])
def test_a_launcher_for_python_rejects_other_programs(
    words: tuple[str, ...], bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.sh").write_text("echo hello\n")
    (tmp_path / "x.sh").chmod(0o700)
    (tmp_path / "one.toml").write_text('script = "x.sh"\nnodes = "1"\n')
    monkeypatch.chdir(tmp_path)
    with live_thread(tmp_path / "run", World(agents=True)) as run:
        monkeypatch.setenv("BFTRAIN_LIVE", run.socket)
        ended = bftrain("submit", *words, "--nodes", "1", "--launcher", "native")
        assert (ended.code, ended.out) == (3, "")
        assert "is no Python script, which the native launcher requires (use --launcher process" in ended.err
        assert run.do(lambda inside: inside.daemon.task_store.next_number) == 1
        fixed = ended.err.rpartition("--launcher process ")[2].rstrip(")\n")
        assert bftrain("submit", fixed, "--nodes", "1", "--launcher", "process").code == 0


def unfinished(run: LiveThread) -> dict[str, Any]:
    return {one.name: one for one in run.do(lambda inside: inside.daemon.task_store.unfinished)}


def write_tasks(path: Path, *names: str) -> None:
    path.write_text("".join(f'[[task]]\nname = "{name}"\nscript = "cnn.py"\nnodes = 1\n' for name in names))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--curve", "1:x"), "'1:x' is not NODES:SAMPLES_PER_SECOND"),
        (("--curve", "1:1", "--curve", "a=1:1"), "is not NODES:SAMPLES_PER_SECOND"),
        (("--curve", "=1:1"), "is not NODES:SAMPLES_PER_SECOND"),
        (("--curve", "2:1,1:1"), "must rise strictly"),
    ],
)
def test_what_is_no_curve_is_refused(bftrain: CommandLine, run: LiveThread, words: tuple[str, ...], says: str) -> None:
    ended = bftrain("submit", "cnn.py", "--nodes", "1", *words)
    assert ended.code in {2, 3}
    assert says in ended.err
    assert unfinished(run) == {}


def test_what_was_submitted_before_a_refusal_is_said(bftrain: CommandLine, run: LiveThread, tmp_path: Path) -> None:
    assert bftrain("submit", "cnn.py", "--nodes", "1", "--name", "x-2").code == 0
    write_tasks(tmp_path / "three.toml", "x-1", "x-2", "x-3")
    ended = bftrain("submit", "three.toml")
    assert (ended.code, "1 of 3 tasks were submitted: the last is 'x-1'" in ended.err) == (3, True)
    assert list(unfinished(run)) == ["x-2", "x-1"]


def test_it_waits_until_all_are_over_and_says_how_they_ended(
    bftrain: CommandLine, run: LiveThread, tmp_path: Path
) -> None:
    def end(inside: Any) -> None:  # noqa: ANN401 - an Inside
        inside.world.lend("n1", "n2")

    over = threading.Event()

    def finish() -> None:
        while not over.is_set() and len(unfinished(run)) < 2:
            over.wait(0.01)
        run.do(end)
        run.do(lambda inside: inside.world.tell("x-1", "done"))
        run.do(lambda inside: inside.service.cancel(ourselves(), "x-2"))

    ending = threading.Thread(target=finish)
    ending.start()
    write_tasks(tmp_path / "two.toml", "x-1", "x-2")
    ended = bftrain("submit", "two.toml", "--wait")
    over.set()
    ending.join()
    assert (ended.code, ended.out) == (1, "x-1: done\nx-2: cancelled\n")
    assert "1 of 2 tasks are not done" in ended.err


def test_ctrl_c_ends_the_waiting_and_not_the_task(
    bftrain: CommandLine, run: LiveThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bftrain.live.commands.submit.time.sleep", pressed)
    ended = bftrain("submit", "cnn.py", "--nodes", "1", "--wait", "--json")
    monkeypatch.undo()
    assert (ended.code, ended.out) == (130, "")
    assert "the tasks continue" in ended.err
    assert list(unfinished(run)) == ["cnn"]


def test_kinds_are_refused_where_nodes_have_none_and_where_a_name_is_empty(
    bftrain: CommandLine, run: LiveThread, tmp_path: Path
) -> None:
    words = ("submit", "cnn.py", "--nodes", "1", "--kinds")
    ended = bftrain(*words, "v100,k80")
    assert (ended.code, "this site names no kinds of nodes" in ended.err) == (3, True)
    ended = bftrain(*words, "v100,")
    assert (ended.code, "contains an empty name" in ended.err) == (2, True)
    (tmp_path / "k.toml").write_text('[[task]]\nscript = "cnn.py"\nnodes = "1"\nkinds = "v100"\n')
    ended = bftrain("submit", "k.toml")
    assert (ended.code, "kinds" in ended.err) == (3, True), ended
    both = bftrain(*words, "v100", "--curve", "v100=1:5")
    assert (both.code, "cannot be given together with curves" in both.err) == (3, True), both
    assert unfinished(run) == {}
