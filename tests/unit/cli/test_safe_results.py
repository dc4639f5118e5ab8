"""Commands spare finished results, and files that they did not write."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
from pathlib import Path

import pytest

from bftrain import generate_log, generate_mix, save_log, save_tasks
from bftrain.result_folder import READY, FolderLock
from bftrain_datasets.log import log_generator
from bftrain_datasets.workloads.task_generators import TaskShape
from bftrain_replay import study
from tests.helpers.in_process import CommandLine

SWF = "".join(f"{job} {job} 0 100 1 -1 -1 1 200 -1 1 1 1 -1 1 -1 -1 -1\n" for job in range(1, 5))
SWEEP = 'log = "log.npz"\ntasks = "tasks.toml"\nyardsticks = false\n[grid]\nmax_tasks = [{}]\n'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with inputs of all commands, in which they run."""
    monkeypatch.chdir(tmp_path)
    save_log(generate_log(12, 0.2, 3), tmp_path / "log.npz")
    save_tasks(generate_mix(5, 3, shape=TaskShape(max_nodes=6, work_samples=3e7)), tmp_path / "tasks.toml")
    curve = "curve = { nodes = [1], rate = [1.0] }"
    (tmp_path / "gang.toml").write_text(f'[[task]]\nname = "a"\n{curve}\nmax_nodes = 1\nwork_samples = 100\n')
    (tmp_path / "jobs.swf").write_text(f"; MaxProcs: 4\n{SWF}", encoding="utf-8")
    (tmp_path / "one.toml").write_text(SWEEP.format(1), encoding="utf-8")
    (tmp_path / "two.toml").write_text(SWEEP.format(2), encoding="utf-8")
    return tmp_path


COMMANDS = {
    "replay": "replay log.npz --tasks tasks.toml -o out",
    "cluster": "replay --cluster 4 --tasks tasks.toml -o out --until 3600",
    "rounds": "replay --cluster 4 --tasks gang.toml -o out --round 60",
    "schedule": "schedule jobs.swf -o out",
}


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_finished_result_is_replaced_only_if_that_is_asked_for(
    bftrain: CommandLine, place: Path, command: str
) -> None:
    words = command.split()
    assert bftrain(*words).code == 0
    before = content_of(place / "out")
    ended = bftrain(*words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("bftrain: out: holds a finished ")
    assert ended.err.endswith("(--overwrite replaces it, or name another folder)\n")
    assert content_of(place / "out") == before
    assert bftrain(*words, "--overwrite").code == 0
    assert content_of(place / "out").keys() == before.keys()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_files_of_others_are_named_and_stay(bftrain: CommandLine, place: Path, command: str) -> None:
    (place / "out").mkdir()
    mine = place / "out" / "config.toml"
    mine.write_text("mine", encoding="utf-8")
    ended = bftrain(*command.split(), "--overwrite")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(
        "bftrain: out/config.toml: was not written with a result of bftrain, and is left unchanged"
    )
    assert content_of(place / "out") == {"config.toml": b"mine"}


def test_the_inputs_in_the_folder_are_not_overwritten(bftrain: CommandLine, place: Path) -> None:
    before = (place / "log.npz").read_bytes()
    ended = bftrain("replay", "log.npz", "--tasks", "tasks.toml", "-o", ".")
    assert ended.code == 2
    assert "log.npz: was not written with a result of bftrain" in ended.err
    assert (place / "log.npz").read_bytes() == before


@pytest.mark.parametrize("command", [*COMMANDS.values(), "sweep one.toml -o out --jobs 1"], ids=[*COMMANDS, "sweep"])
def test_a_folder_in_use_is_refused_at_once(bftrain: CommandLine, place: Path, command: str) -> None:
    (place / "out").mkdir()
    with FolderLock(place / "out"):
        ended = bftrain(*command.split())
    assert (ended.code, ended.out) == (2, "")
    assert f"bftrain: out: is in use by process {os.getpid()} on " in ended.err


@pytest.mark.filterwarnings("default::bftrain.errors.ResultWarning")
def test_a_folder_that_cannot_be_locked_is_written_with_a_warning(
    bftrain: CommandLine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    ended = bftrain(*COMMANDS["rounds"].split(), "-q")
    assert (ended.code, (place / "out" / "summary.json").exists()) == (0, True)
    text = "its file system has no locks: run no second command that writes there until this one has ended"
    assert ended.err == f"warning: out: {text}\n"


def test_a_page_is_not_drawn_into_a_folder_whose_result_is_being_replaced(bftrain: CommandLine, place: Path) -> None:
    assert bftrain(*COMMANDS["rounds"].split()).code == 0
    (place / "out" / "report.html").unlink()
    with FolderLock(place / "out"):
        ended = bftrain("report", "out")
        assert (ended.code, "out: is in use by process " in ended.err) == (2, True)
        assert bftrain("report", "out", "-o", "page.html").code == 0
    (place / "out" / READY).mkdir()
    (place / "out" / "summary.json").rename(place / "out" / READY / "summary.json")  # killed before its last move
    assert bftrain("report", "out").code == 0
    assert {"report.html", "summary.json"} <= content_of(place / "out").keys()


def test_an_interrupted_replay_leaves_the_finished_one(
    bftrain: CommandLine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = COMMANDS["replay"].split()
    assert bftrain(*words).code == 0
    before, really = content_of(place / "out"), study.study

    def press_and_study(*args: object, **kwargs: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return really(*args, **kwargs)  # type: ignore[arg-type]  # handed through

    monkeypatch.setattr(study, "study", press_and_study)
    ended = bftrain(*words, "--overwrite", "--max-tasks", "2")
    assert ended.code == 130
    assert ended.err.endswith("interrupted; the finished result in out is as it was\n")
    assert "result: out" not in ended.err
    assert content_of(place / "out") == before


def test_a_sweep_goes_on_and_one_with_nothing_in_common_is_refused(bftrain: CommandLine, place: Path) -> None:
    for _ in range(2):
        assert bftrain("sweep", "one.toml", "-o", "out", "--jobs", 1).code == 0
    before = content_of(place / "out")
    ended = bftrain("sweep", "two.toml", "-o", "out", "--jobs", 1)
    assert ended.code == 2
    assert "out: holds a finished sweep, and is left unchanged (--overwrite replaces it" in ended.err
    assert content_of(place / "out") == before
    assert bftrain("sweep", "two.toml", "-o", "out", "--jobs", 1, "--overwrite").code == 0
    assert b"max_tasks = [2]" not in before["sweep.json"] != (place / "out" / "sweep.json").read_bytes()


@pytest.mark.parametrize("name", ["report.html", "table.csv", "workers.log", "points.jsonl"])
def test_a_sweep_spares_files_of_others(bftrain: CommandLine, place: Path, name: str) -> None:
    (place / "out").mkdir()
    (place / "out" / name).write_text("mine", encoding="utf-8")
    ended = bftrain("sweep", "one.toml", "-o", "out", "--jobs", 1)
    assert ended.code == 2
    assert name in ended.err
    assert content_of(place / "out") == {name: b"mine"}


@pytest.fixture
def _short_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    short = log_generator.generate_log(256, 0.3, 54)
    monkeypatch.setattr(log_generator, "sample_log", lambda: short)


@pytest.mark.usefixtures("_short_demo")
def test_the_demo_replaces_itself_and_says_so_and_nothing_else(bftrain: CommandLine, place: Path) -> None:
    demo = ("demo", "--quick")
    assert "replacing" not in bftrain(*demo).err
    again = bftrain(*demo)
    assert (again.code, again.err.splitlines()[0]) == (0, "replacing the earlier demo in demo")
    (place / "demo" / "tasks.toml").write_bytes((place / "tasks.toml").read_bytes())
    before = content_of(place / "demo" / "replay")
    ended = bftrain(*demo)
    assert ended.code == 2
    assert "bftrain: demo/tasks.toml: changed since bftrain wrote it" in ended.err
    assert content_of(place / "demo" / "replay") == before


@pytest.mark.usefixtures("_short_demo")
def test_a_demo_that_was_killed_before_it_had_its_inputs_can_be_run_again(bftrain: CommandLine, place: Path) -> None:
    assert bftrain("demo", "--quick").code == 0
    written = {path for path in (place / "demo").iterdir() if path.is_file()}
    for path in written:
        path.unlink()
    assert bftrain("demo", "--quick").code == 0
    assert {path for path in (place / "demo").iterdir() if path.is_file()} == written


@pytest.mark.parametrize("inputs", [{}, {"inputs": []}, {"inputs": {"log": {}}}])
def test_the_demo_spares_a_result_that_does_not_say_of_what_it_is(
    bftrain: CommandLine, place: Path, inputs: dict[str, object]
) -> None:
    folder = place / "demo" / "replay"
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({"format": "bftrain replay 1", **inputs}), encoding="utf-8")
    ended = bftrain("demo", "--quick")
    assert (ended.code, ended.err) == (
        2,
        "bftrain: demo/replay: holds a finished replay, and is left unchanged (name another folder)\n",
    )


def test_the_demo_spares_a_replay_of_something_else(bftrain: CommandLine, place: Path) -> None:
    assert bftrain("replay", "log.npz", "--tasks", "tasks.toml", "-o", "demo/replay").code == 0
    ended = bftrain("demo", "--quick")
    assert ended.code == 2
    assert ended.err == "bftrain: demo/replay: holds a finished replay, and is left unchanged (name another folder)\n"
    assert list((place / "demo").iterdir()) == [place / "demo" / "replay"]


def test_pages_replace_pages_of_bftrain_only(bftrain: CommandLine, place: Path) -> None:
    page = ("-o", "page.html")
    commands = (("report", "one"), ("report", "one", *page), ("compare", "one", "two", *page))
    for name in ("one", "two"):
        assert bftrain("replay", "log.npz", "--tasks", "tasks.toml", "-o", name).code == 0
    for words in commands:
        assert bftrain(*words).code == 0
    for path in (place / "page.html", place / "one" / "report.html"):
        path.write_text("mine", encoding="utf-8")
    for words in commands:
        ended = bftrain(*words)
        assert ended.code == 2
        assert ".html: is not a page that bftrain wrote, and is left unchanged" in ended.err
    assert (place / "page.html").read_text(encoding="utf-8") == "mine"
