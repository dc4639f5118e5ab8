"""``train`` and ``elastic check`` with scripted trainings: what is reported, measured and refused."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Self

import pytest

from bftrain import Availability, SpeedCurve, TaskSpec, save_tasks
from bftrain_elastic.errors import ElasticError
from bftrain_elastic.manager import launchers
from bftrain_elastic.tryout.try_script import TASK, ScriptTrial
from tests.helpers.in_process import CommandLine

HERE: Any = lambda: Availability(ok=True)  # noqa: E731 - as a launcher says it
Play = Callable[["Played", int], None]


class Played(ScriptTrial):
    """A training without agents or processes: at each new size, ``play`` says what is reported."""

    play: Play
    warm = True
    closed: list[Path] = []  # noqa: RUF012 - of all that were

    def __enter__(self) -> Self:
        self._scratch = Path("/nonexistent")
        self.folder = self._given_folder or self._scratch
        self._launcher = self
        self.step = 0
        self.t = time.time()
        return self

    def __exit__(self, *_: object) -> None:
        Played.closed.append(self.folder)

    def is_warm(self) -> bool:
        return Played.warm

    def add(self, task: str, job: Mapping[str, Any]) -> None:
        """As a launcher."""

    def apply(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Take the orders as a launcher would; only the size counts."""
        del actions
        Played.play(self, len(self.held))

    def close(self) -> None:
        """As a launcher."""

    def tell(self, what: str, **more: object) -> None:
        self._hear({"t": self.t, "type": what, "task": TASK, **more})

    def steps(self, count: int, size: int, *, loss: float | None = 1.0) -> None:
        for _ in range(count):
            self.step += 1
            self.t += 0.1
            fallen = None if loss is None else loss / self.step
            self.tell("report", step=self.step, size=size, samples=32 * size, loss=fallen)


def well(played: Played, size: int) -> None:
    if not size:
        played.tell("paused", step=played.step)
        return
    played.tell("starting" if not played.step else "note", text="it changes", nodes=[])
    played.tell("confirmed", size=size, step=played.step)
    played.steps(40, size)
    played.tell("on_disk", step=played.step)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a script, whose training is played."""
    path = tmp_path / "cnn.py"
    path.write_text("from bftrain_elastic import run\n")
    monkeypatch.setattr("bftrain_elastic.tryout.try_script.ScriptTrial", Played)
    monkeypatch.setattr(launchers, "native", replace(launchers.native, available=HERE))  # nothing needs torch
    monkeypatch.setattr(Played, "play", staticmethod(well), raising=False)
    monkeypatch.setattr(Played, "warm", True)
    monkeypatch.setattr("bftrain.live.commands.train._REST_S", 0.05)
    Played.closed.clear()
    return path


def plays(monkeypatch: pytest.MonkeyPatch, play: Play) -> None:
    monkeypatch.setattr(Played, "play", staticmethod(play), raising=False)


def test_a_terminal_shows_a_bar_with_step_loss_and_nodes(
    bftrain: CommandLine, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "120"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    ended = bftrain("train", script, "--nodes", "1:3", "--for", "1")
    assert ended.code == 0, ended.err
    assert re.search(r"step \d+, loss [\d.]+(, 320 samples/s)?, (1 node|3 nodes) +\S+ \d/1", ended.err)  # bar, seconds
    assert re.search(r"^.*\d s  3 nodes, from step 40 on", ended.err, re.MULTILINE)
    assert not re.search(r"\d s  step", ended.err)
    assert "\x1b" not in ended.out


def test_sizes_are_gone_through_and_measured(bftrain: CommandLine, script: Path) -> None:
    ended = bftrain("train", script, "--nodes", "1:3", "--for", "1")
    assert ended.code == 0, ended.err
    assert ended.err.startswith("starting 3 agents on this machine ...")
    for words in ("1 node, from step 0 on", "3 nodes, from step 40 on", "1 node, from step 80 on", "it changes"):
        assert words in ended.err
    assert re.search(r"step \d+, 320 samples/s, loss", ended.err)
    assert ended.out.startswith("stopped after 120 steps, loss 1 -> 0.008333")
    rows = [line.split() for line in ended.out.splitlines() if line.split()[:1] in (["1"], ["3"])]
    assert rows == [["1", "320", "100.0"], ["3", "960", "100.0"]]
    assert "Costs of changing the size" in ended.out
    assert Played.closed


def test_figures_as_json_and_a_folder_that_stays(bftrain: CommandLine, script: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    changes = ("--script", "2@0,1@0.05", "--for", "0.7", "--folder", folder)
    ended = bftrain("train", script, "--nodes", "1:2", *changes, "--json", "--", "--steps", "5")
    result = json.loads(ended.out)
    assert (ended.code, result["ended"], result["steps"]) == (0, "stopped", 80)
    assert result["speed"] == pytest.approx({"1": 320.0, "2": 640.0})
    assert result["step_s"] == pytest.approx({"1": 0.1, "2": 0.1})
    assert set(result["cost_s"]) == {"shrink", "start"} or set(result["cost_s"]) == {"shrink"}
    assert Played.closed == [folder]
    assert "paused at step 80" in ended.err, "its state is in the folder"


def test_growth_is_shown_with_the_size_of_the_state(
    bftrain: CommandLine, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def large(played: Played, size: int) -> None:
        played.tell("confirmed", size=size, step=played.step, state_bytes=3_000_000)
        played.t += 0.5 * (size > 1)
        played.steps(10, size)

    plays(monkeypatch, large)
    ended = bftrain("train", script, "--nodes", "1:2", "--for", "0.3", "--json")
    state = json.loads(ended.out)["state"]
    assert state == {"bytes": 3_000_000, "grow_s": pytest.approx(0.5)}
    shown = " ".join(bftrain("train", script, "--nodes", "1:2", "--for", "0.3").out.split())
    assert "The state has 3.0 MB. Growing cost 0.500 s (median)." in shown


def test_a_script_that_fails_is_reported_with_its_last_words(
    bftrain: CommandLine, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(played: Played, size: int) -> None:
        del size
        reason = "exit code 1\nTraceback (most recent call last):\n  File x\nValueError: no such layer"
        played.tell("failed", reason=reason)

    plays(monkeypatch, fails)
    ended = bftrain("train", script)
    assert ended.code == 3
    assert "its last output:\n      File x\n    ValueError: no such layer" in ended.err
    assert "it failed: ValueError: no such layer" in ended.err


def test_sizes_at_which_nothing_was_done_are_named(
    bftrain: CommandLine, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_one(played: Played, size: int) -> None:
        if size == 1:
            played.tell("confirmed", size=1, step=0)
            played.steps(5, 1, loss=None)

    plays(monkeypatch, only_one)
    ended = bftrain("train", script, "--nodes", "1:2", "--for", "0.8")
    assert ended.code == 0
    assert "no step was done on 2 nodes, because no state was committed: call state.commit()" in ended.err
    assert "loss" not in ended.out


def test_ctrl_c_keeps_the_figures(bftrain: CommandLine, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(played: Played, size: int) -> None:
        well(played, size)
        os.kill(os.getpid(), signal.SIGINT)

    plays(monkeypatch, interrupted)
    ended = bftrain("train", script, "--nodes", "1")
    assert ended.code == 130
    assert ended.out.startswith("stopped after 40 steps")
    assert "interrupted; the figures cover the completed part" in ended.err

    plays(monkeypatch, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    ended = bftrain("train", script, "--nodes", "1")
    assert (ended.code, ended.out) == (130, "")
    assert "interrupted before a step was reported" in ended.err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--nodes", "four"), 2, "'four' is not MIN:MAX"),
        (("--nodes", "3:1"), 2, "'3:1' is not MIN:MAX"),
        (("--nodes", "0:1"), 2, "'0:1' is not MIN:MAX"),
        (("--script", "1@5"), 2, "the first size must be given for second 0"),
        (("--script", "soon"), 2, "not SIZE@SECONDS"),
        (("--script", "1@0,9@1"), 2, "9 is outside --nodes 1:4"),
        (("--backend", "nativ"), 3, "did you mean 'native'?"),
        (("--for", "0"), 2, "--for"),
    ],
)
def test_what_cannot_be_tried_is_refused(
    words: tuple[str, ...], code: int, says: str, bftrain: CommandLine, script: Path
) -> None:
    ended = bftrain("train", script, *words)
    assert (ended.code, ended.out) == (code, "")
    assert says in ended.err


def test_a_backend_that_is_not_here_is_reported(
    bftrain: CommandLine, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing: Any = Availability(ok=False, reason="torch is not installed", fix="pip install it")
    with monkeypatch.context() as without:
        without.setattr(launchers, "native", replace(launchers.native, available=lambda: missing))
        ended = bftrain("train", script)
    assert ended.code == 4
    assert "torch is not installed" in ended.err
    monkeypatch.setattr(
        Played, "__enter__", lambda _: (_ for _ in ()).throw(ElasticError("no port is free", fix="wait"))
    )
    ended = bftrain("train", script)
    assert ended.code == 3
    assert "no port is free" in ended.err


def test_a_script_that_is_ready_is_reported(bftrain: CommandLine, script: Path) -> None:
    ended = bftrain("check", script, "--steps", "10")
    assert ended.code == 0, ended.err
    for words in ("reports", "commits", "resizes", "trained on 1 -> 2 -> 1 nodes", "keeps its progress"):
        assert words in ended.out
    assert "running it on one node, on two, and on the second of them alone" in ended.err


def test_a_script_that_is_not_ready_is_reported_with_what_it_lacks(
    bftrain: CommandLine, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgets(played: Played, size: int) -> None:
        played.tell("confirmed", size=size, step=0)
        played.step = 0
        played.steps(20, size, loss=None)

    plays(monkeypatch, forgets)
    ended = bftrain("check", script, "--json")
    assert ended.code == 3
    found = {one["name"]: one["ok"] for one in json.loads(ended.out)}
    assert found["keeps its progress"] is False
    assert found["commits"] is False
    assert "not ready to be resized: " in ended.err


def test_a_check_can_be_interrupted_and_a_script_that_fails_says_why(
    bftrain: CommandLine, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plays(monkeypatch, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    ended = bftrain("check", script)
    assert ended.code == 130
    assert "interrupted before all was seen" in ended.err
    plays(monkeypatch, lambda played, _: played.tell("failed", reason="exit code 1\nKeyError: 'lr'"))
    ended = bftrain("check", script)
    assert ended.code == 3
    assert "KeyError: 'lr'" in ended.err
    assert "runs" in ended.out


@pytest.mark.parametrize("command", ["train", "elastic check"])
def test_a_script_that_makes_no_step_is_noticed(
    bftrain: CommandLine, script: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    plays(monkeypatch, lambda played, size: played.tell("confirmed", size=size, step=0))
    monkeypatch.setattr("bftrain_elastic.tryout.readiness_check.SILENCE_S", 0.1)
    options = ("--nodes", "1", "--for", "0.5") if command == "train" else ("--patience", "0.5")
    ended = bftrain(*command.split(), script, *options)
    assert ended.err.count("warning: no step was reported in 15 s: call report(samples=..., loss=...)") == 1


def test_what_was_measured_is_saved_as_a_profile(bftrain: CommandLine, script: Path, tmp_path: Path) -> None:
    path = tmp_path / "cnn.toml"
    ended = bftrain("train", script, "--nodes", "1:3", "--for", "1s", "--save-profile", path, "--json")
    assert ended.code == 0, ended.err
    (profile,) = tomllib.loads(path.read_text())["profile"]
    figures = json.loads(ended.out)
    assert (profile["name"], profile["nodes"]) == ("cnn", [1, 3])
    assert profile["rate"] == list(figures["speed"].values()) == pytest.approx([320.0, 960.0])
    assert profile["grow_cost_s"] == pytest.approx(median(figures["cost_s"]["grow"]))
    assert f"--kind trials --profiles {path}" in ended.err


def test_a_profile_does_not_replace_a_generated_task_file(bftrain: CommandLine, script: Path, tmp_path: Path) -> None:
    path = tmp_path / "tasks.toml"
    save_tasks(
        [TaskSpec(name="a", max_nodes=1, curve=SpeedCurve(nodes=(1,), rate=(1.0,)))], path, note="made by bftrain"
    )
    before = path.read_bytes()
    ended = bftrain("train", script, "--nodes", "1:3", "--for", "1s", "--save-profile", path)
    assert (ended.code, path.read_bytes()) == (2, before)
