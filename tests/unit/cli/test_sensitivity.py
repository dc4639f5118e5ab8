"""The sensitivity table on the command line: shown, left out, and missing after Ctrl-C, which keeps the replay."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import NoReturn

import pytest

from bftrain import NotAvailable, generate_log, generate_mix, save_log, save_tasks
from bftrain_datasets.workloads.task_generators import TaskShape
from bftrain_replay.sweeping import alternatives
from tests.helpers.in_process import CommandLine


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """Return a command with the table, which tests leave out unless they ask for it."""
    monkeypatch.setenv("BFTRAIN_QUICK", "0")
    log, tasks = tmp_path / "log.npz", tmp_path / "tasks.toml"
    save_log(generate_log(16, 0.2, 3), log)
    save_tasks(generate_mix(8, 3, shape=TaskShape(max_nodes=6, work_samples=3e7)), tasks)
    return "replay", log, "--tasks", tasks, "-o", tmp_path / "out"


def summary_of(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "out" / "summary.json").read_text(encoding="utf-8"))
    return found


def test_the_table_is_printed_and_written(bftrain: CommandLine, command: tuple[object, ...], tmp_path: Path) -> None:
    ended = bftrain(*command)
    assert ended.code == 0, ended.err
    assert "more replays, " in ended.err
    assert "--quick leaves them out" in ended.err
    for words in ("progress in memory *", "progress on disk every 60 min", "costs x 1/4", "start 5 min"):
        assert words in ended.out
        assert words.removesuffix(" *") in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    rows = summary_of(tmp_path)["sensitivity"]
    assert isinstance(rows, list)
    assert [row["setting"] for row in rows if row["chosen"]][:2] == ["memory", "1"]
    begin = ended.out.index("assumed (* here)")
    assert max(map(len, ended.out[begin:].splitlines()[:13])) <= 79


def test_advice_is_tried_and_written(bftrain: CommandLine, command: tuple[object, ...], tmp_path: Path) -> None:
    save_tasks(generate_mix(8, 3, shape=TaskShape(max_nodes=3, work_samples=1e9)), tmp_path / "tasks.toml")
    assert bftrain(*command, "--max-tasks", 1).code == 0
    advice = summary_of(tmp_path)["advice"]
    assert isinstance(advice, list)
    assert advice[0]["option"] == "--max-tasks 2"
    assert "<code>--max-tasks 2</code>: <strong>+" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("option", ["--quick", "BFTRAIN_QUICK"])
def test_it_can_be_left_out(
    bftrain: CommandLine, command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    if option == "BFTRAIN_QUICK":
        monkeypatch.setenv(option, "1")
        command = (*command, "-q")
    else:
        command = (*command, option)
    ended = bftrain(*command)
    assert (ended.code, "more replays" in ended.err) == (0, False)
    assert "costs x 1/4" not in ended.out
    assert summary_of(tmp_path)["sensitivity"] is None
    assert summary_of(tmp_path)["advice"] is None


def test_the_published_rules_have_no_such_table(
    bftrain: CommandLine, command: tuple[object, ...], tmp_path: Path
) -> None:
    assert bftrain(*command, "--semantics", "published").code == 0
    assert summary_of(tmp_path)["sensitivity"] is None


def test_ctrl_c_while_it_is_made_keeps_the_replay(
    bftrain: CommandLine, command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = alternatives.plan

    def press_and_plan(*args: object, **kwargs: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return really(*args, **kwargs)  # type: ignore[arg-type]  # handed through

    monkeypatch.setattr(alternatives, "plan", press_and_plan)
    ended = bftrain(*command)
    assert ended.code == 130
    assert "is complete, only sensitivity table and advice are missing" in ended.err
    assert "efficiency U" in ended.out
    found = summary_of(tmp_path)
    assert (found["complete"], found["sensitivity"]) == (True, None)
    assert isinstance(found["efficiency"], float)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device", "/run/bftrain-x"), "No space left on device: '/run/bftrain-x'"),
        (NotAvailable("no worker lives here: killed", where="sweep"), "sweep: no worker lives here: killed"),
    ],
)
def test_a_table_that_cannot_be_made_costs_the_table_and_no_more(
    bftrain: CommandLine,
    command: tuple[object, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    words: str,
) -> None:
    def fail(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(alternatives, "replay_alternatives", fail)
    ended = bftrain(*command)
    assert ended.code == 0
    assert "warning: no sensitivity table and no advice: " in ended.err
    assert words in ended.err
    assert (summary_of(tmp_path)["complete"], summary_of(tmp_path)["sensitivity"]) == (True, None)


def test_a_replay_that_fails_costs_the_table_and_no_more(
    bftrain: CommandLine, command: tuple[object, ...], tmp_path: Path
) -> None:
    own = tmp_path / "once.py"
    own.write_text(
        f"import os\ndef once(task, sizes):\n    if os.getpid() != {os.getpid()}:\n"
        "        raise ValueError('elsewhere')\n"
        "    return task.curve.speeds(int(max(sizes)))[sizes]\n"
    )
    ended = bftrain(*command, "--objective", f"{own}:once")
    assert ended.code == 0, ended.err
    assert "warning: no sensitivity table and no advice: a replay for them failed" in ended.err
    assert summary_of(tmp_path)["sensitivity"] is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--progress", "disk:600", "--checkpoint-interval", "300"), "--checkpoint-interval: contradicts progress"),
        (("--progress", "memory", "--checkpoint-interval", "300"), "leave one of them out; progress disk:300 says"),
        (("--progress", "ram"), "--progress: is 'ram' (write memory, memory:SECONDS, disk:SECONDS or task"),
        (("--progress", "memory", "--semantics", "published"), "--progress: is unknown to the published rules"),
        (("--progress", "task", "--semantics", "published"), "--progress: is unknown to the published rules"),
    ],
)
def test_what_contradicts_itself_is_refused(
    bftrain: CommandLine, command: tuple[object, ...], options: tuple[str, ...], words: str
) -> None:
    ended = bftrain(*command, *options)
    assert ended.code != 0
    assert words in ended.err


def test_an_interval_on_the_command_line_is_progress_on_disk(
    bftrain: CommandLine, command: tuple[object, ...], tmp_path: Path
) -> None:
    assert bftrain(*command, "--quick", "--checkpoint-interval", "300").code == 0
    assert 'progress = "disk:300"' in (tmp_path / "out" / "config.toml").read_text(encoding="utf-8")
    config = tmp_path / "out" / "config.toml"
    again = ("--quick", "--overwrite", "--config", config, "--checkpoint-interval", "600")
    assert bftrain(*command, *again).code == 0
    settings = summary_of(tmp_path)["settings"]
    assert isinstance(settings, dict)
    assert settings["progress"] == "disk:600"
