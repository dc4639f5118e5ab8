"""``bftrain live measure``, ``pause`` and ``resume``: what is submitted and left, with Slurm's commands played."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bftrain import Client, NotAvailable
from tests.helpers.in_process import CommandLine
from tests.helpers.live_inside import ourselves, submit
from tests.helpers.live_thread import LiveThread, live_thread

# The job runs at once, in the background; with the file "hold" it waits for ever
SBATCH = """#!/bin/sh
echo "sbatch $*" >>"$PLAYED/calls"
case "$*" in *--test-only*) [ ! -e "$PLAYED/refuse" ] || { echo "invalid partition" >&2; exit 1; }; exit 0 ;; esac
cat >"$PLAYED/job.$$"
[ -e "$PLAYED/hold" ] || SLURM_JOB_NODELIST=n1 sh "$PLAYED/job.$$"
echo 7
"""
OTHER = """#!/bin/sh
echo "$(basename "$0") $*" >>"$PLAYED/calls"
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveThread]:
    """Yield a live run with a task on a node, and Slurm's commands."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", OTHER), ("scancel", OTHER)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PLAYED", str(tmp_path))
    for name, value in (("_STEADY_S", 0.0), ("_ASK_S", 0.005), ("_SWITCH_S", 20.0), ("_GOLDEN", 0.0)):
        monkeypatch.setattr(f"bftrain.live.commands.measure.{name}", value)
    status = Client.status
    monkeypatch.setattr(Client, "status", lambda self: msgspec.structs.replace(status(self), scheduler="slurm"))
    with live_thread(tmp_path / "run") as found:
        monkeypatch.setenv("BFTRAIN_LIVE", found.socket)
        monkeypatch.chdir(tmp_path)
        found.do(lambda inside: submit(inside.service, "a"))
        found.do(lambda inside: inside.world.lend("n1"))
        yield found


def calls(folder: Path, name: str) -> list[str]:
    return [line for line in (folder / "calls").read_text().splitlines() if line.startswith(name)]


def paused(run: LiveThread) -> bool:
    return bool(run.do(lambda inside: inside.service.harvesting().paused))


def states(run: LiveThread) -> list[str]:
    return list(run.do(lambda inside: [one.text for one in inside.daemon.remarks.latest]))


WORDS = ("live", "measure", "--jobs", "4", "--block", "2", "--gap", "0", "--partition", "main")


def test_it_submits_what_it_says_by_turns_and_leaves_nothing(
    bftrain: CommandLine, run: LiveThread, tmp_path: Path
) -> None:
    ended = bftrain(*WORDS, "--option=--account=a", "--yes", "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert [len(block) for side in ("without_s", "with_s") for block in found[side]] == [2, 2, 2, 2]
    assert {one["name"] for one in found["compared"]} == {"median", "p95", "longest"}
    submitted = calls(tmp_path, "sbatch")
    assert len(submitted) == 1 + 8
    name = found["command"].split()[1].removeprefix("--job-name=")
    for words in (f"--job-name={name}", "--nodes=1 --exclusive --time=1 --account=a --partition=main"):
        assert all(words in line for line in submitted)
        assert words in ended.err, "it says before what it will submit"
    assert "It submits 8 jobs, one at a time" in ended.err
    assert calls(tmp_path, "scancel") == [f"scancel --quiet --me --name={name}"]
    assert not list(tmp_path.glob(".bftrain-measure-*"))
    assert not paused(run)
    assert "harvesting is paused: no node is used" in states(run)


def test_the_partition_of_the_pilots_is_refused(
    bftrain: CommandLine, run: LiveThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harvesting = Client.harvesting
    monkeypatch.setattr(
        Client, "harvesting", lambda self: msgspec.structs.replace(harvesting(self), partitions=("spare", "main"))
    )
    ended = bftrain(*WORDS, "--yes")
    assert (ended.code, "--partition main: pilots run there" in ended.err) == (2, True), ended.err
    assert not (tmp_path / "calls").exists(), "no job was submitted"
    assert bftrain(*WORDS, "--option=--qos=high", "--yes").code == 0, "jobs may preempt by their QOS"
    assert not paused(run)


def test_a_pause_of_before_is_there_again_afterwards(bftrain: CommandLine, run: LiveThread) -> None:
    assert bftrain("live", "pause", "--for", "1h").out.startswith("harvesting is paused until ")
    assert "is not in the range x>0" in bftrain("live", "pause", "--for", "0").err
    until_s = run.do(lambda inside: inside.service.harvesting().until_s)
    assert bftrain(*WORDS, "--yes", "-q").code == 0
    view = run.do(lambda inside: inside.service.harvesting())
    assert (view.paused, view.until_s) == (True, pytest.approx(until_s, abs=2))
    assert "paused" in bftrain("status").out
    assert bftrain("live", "resume").out == "harvesting goes on\n"
    assert not paused(run)


def breaks_at(monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException) -> None:
    """Let the wait for a probe job with this number end with an error."""
    jobs = importlib.import_module("bftrain.live.commands.probe_jobs").ProbeJobs
    wait, numbers = jobs.wait, count()

    def waits(*words: Any) -> Any:  # noqa: ANN401 - handed through
        if next(numbers) == number:
            raise error
        return wait(*words)

    monkeypatch.setattr(jobs, "wait", waits)


def test_ctrl_c_restores_what_was_and_shows_what_is_measured(
    bftrain: CommandLine, run: LiveThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks_at(monkeypatch, 6, KeyboardInterrupt())
    ended = bftrain(*WORDS, "--yes")
    assert (ended.code, "interrupted" in ended.err) == (0, True)
    assert "waits of 2 jobs without and 2 with harvesting" in ended.out
    assert not paused(run)
    assert calls(tmp_path, "scancel"), "what may still wait is cancelled"


def test_measuring_goes_on_where_it_ended(
    bftrain: CommandLine, run: LiveThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "waits.json"
    breaks_at(monkeypatch, 6, NotAvailable("a probe job waits for ever"))
    ended = bftrain(*WORDS, "--yes", "--record", record)
    assert (ended.code, "waits for ever" in ended.err, "block 2 of 4, with" in ended.err) == (4, True, True)
    assert "waits of 2 jobs without and 2 with harvesting" in ended.out, "what was measured is not lost"
    assert "Too few blocks for a confidence interval" in ended.out
    (before,) = json.loads(record.read_text())["with_s"]
    ended = bftrain(*WORDS, "--yes", "--record", record, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert ("It submits 4 jobs" in ended.err, len(found["with_s"]), found["with_s"][0]) == (True, 2, before)
    ended = bftrain(*WORDS, "--yes", "--record", record)
    assert (ended.code, "All of it is measured already" in ended.err) == (0, True)
    assert "waits of 4 jobs without and 4 with harvesting" in ended.out
    ended = bftrain(*WORDS, "--yes", "--record", record, "--nodes", "2")
    assert (ended.code, "has waits of jobs on 1 node by sbatch" in ended.err) == (3, True)
    record.write_text("{}")
    assert bftrain(*WORDS, "--yes", "--record", record).code == 3
    assert bftrain(*WORDS, "--yes", "--record", tmp_path / "no" / "folder").code == 3
    assert run.socket


@pytest.mark.parametrize(
    ("file", "words", "says"),
    [
        ("refuse", (), "a probe job is refused: invalid partition"),
        ("hold", ("--patience", "0.05"), "a probe job waits for more than 0.05 s"),
    ],
)
def test_what_cannot_be_measured_is_said_and_harvesting_goes_on(
    bftrain: CommandLine, run: LiveThread, tmp_path: Path, file: str, words: tuple[str, ...], says: str
) -> None:
    (tmp_path / file).touch()
    ended = bftrain(*WORDS, *words, "--yes")
    assert ended.code in {3, 4}
    assert says in ended.err
    assert not paused(run)


def test_nothing_is_submitted_without_a_word_of_the_operator(
    bftrain: CommandLine, run: LiveThread, tmp_path: Path
) -> None:
    ended = bftrain(*WORDS)
    assert (ended.code, "--yes" in ended.err) == (2, True)
    assert len(calls(tmp_path, "sbatch")) == 1, "only whether such a job is allowed was asked"
    assert not paused(run)


def test_who_is_no_operator_is_refused_before_anything_else(
    bftrain: CommandLine, run: LiveThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = msgspec.structs.replace(ourselves(), operator=False)
    monkeypatch.setattr("bftrain.live.model.callers.caller_at_socket", lambda *_: stranger)
    ended = bftrain(*WORDS, "--yes")
    assert (ended.code, "is no operator" in ended.err) == (3, True)
    assert not (tmp_path / "calls").exists()
    assert not paused(run)
