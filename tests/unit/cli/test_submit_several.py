"""``bftrain submit``: several tasks of a file, their speeds, and waiting until they are over."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.in_process import CommandLine
from tests.helpers.live_inside import ourselves
from tests.helpers.live_thread import LiveThread


def kept(run: LiveThread) -> dict[str, Any]:
    return {one.name: one for one in run.do(lambda inside: inside.daemon.task_store.unfinished)}


def write_tasks(path: Path, *names: str) -> None:
    path.write_text("".join(f'[[task]]\nname = "{name}"\nscript = "cnn.py"\nnodes = 1\n' for name in names))


def test_a_task_runs_after_others(bftrain: CommandLine, run: LiveThread, tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(
        '[[task]]\nname = "a"\nscript = "cnn.py"\nnodes = 1\n'
        '[[task]]\nname = "b"\nscript = "cnn.py"\nnodes = 1\nafter = ["a"]\n'
    )
    assert bftrain("submit", "two.toml").code == 0
    ended = bftrain("submit", "cnn.py", "--nodes", "1", "--name", "c", "--after", "a", "--after", "#2")
    assert ended.code == 0, ended.err
    tasks = kept(run)
    assert [tasks[name].after for name in "abc"] == [(), (1,), (1, 2)]
    assert "it runs after #1, #2" in bftrain("status", "c").out
    for wrong in ('"a"', "[1]"):
        (tmp_path / "bad.toml").write_text(f'script = "cnn.py"\nnodes = 1\nafter = {wrong}\n')
        ended = bftrain("submit", "bad.toml")
        assert (ended.code, "after" in ended.err) == (3, True), ended.err


def test_speeds_are_given_by_nodes(bftrain: CommandLine, run: LiveThread) -> None:
    assert bftrain("submit", "cnn.py", "--curve", "1:100,2:1.9e2").code == 0
    spec = kept(run)["cnn"].spec
    assert (spec.curve.nodes, spec.curve.rate, spec.max_nodes) == ((1, 2), (100.0, 190.0), 2)


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
    assert kept(run) == {}


def test_what_was_submitted_before_a_refusal_is_said(bftrain: CommandLine, run: LiveThread, tmp_path: Path) -> None:
    assert bftrain("submit", "cnn.py", "--nodes", "1", "--name", "x-2").code == 0
    write_tasks(tmp_path / "three.toml", "x-1", "x-2", "x-3")
    ended = bftrain("submit", "three.toml")
    assert (ended.code, "1 of 3 tasks were submitted: the last is 'x-1'" in ended.err) == (3, True)
    assert list(kept(run)) == ["x-2", "x-1"]


def test_it_waits_until_all_are_over_and_says_how_they_ended(
    bftrain: CommandLine, run: LiveThread, tmp_path: Path
) -> None:
    def end(inside: Any) -> None:  # noqa: ANN401 - an Inside
        inside.world.lend("n1", "n2")

    over = threading.Event()

    def finish() -> None:
        while not over.is_set() and len(kept(run)) < 2:
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
    assert "the tasks go on" in ended.err
    assert list(kept(run)) == ["cnn"]


def test_kinds_are_refused_where_nodes_have_none_and_where_a_name_is_empty(
    bftrain: CommandLine, run: LiveThread, tmp_path: Path
) -> None:
    words = ("submit", "cnn.py", "--nodes", "1", "--kinds")
    ended = bftrain(*words, "v100,k80")
    assert (ended.code, "this site names no kinds of nodes" in ended.err) == (3, True)
    ended = bftrain(*words, "v100,")
    assert (ended.code, "holds an empty name" in ended.err) == (2, True)
    (tmp_path / "k.toml").write_text('[[task]]\nscript = "cnn.py"\nnodes = "1"\nkinds = "v100"\n')
    ended = bftrain("submit", "k.toml")
    assert (ended.code, "kinds" in ended.err) == (3, True), ended
    both = bftrain(*words, "v100", "--curve", "v100=1:5")
    assert (both.code, "cannot be given together with curves" in both.err) == (3, True), both
    assert kept(run) == {}
