"""What is said of how far a replay is."""

from __future__ import annotations

import io
import sys

import pytest

from bftrain.cli.output import Output
from bftrain_replay.commands import replay_run
from bftrain_replay.commands.replay_run import ReplayProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Go on when asked to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(replay_run.time, "monotonic", lambda: self.now_s)


def test_a_log_gets_a_line_every_half_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, out = Clock(monkeypatch), Output(json=False, level=0)
    progress = ReplayProgress(out, 40 * 3600.0)
    for seconds in range(0, 71, 10):
        clock.now_s = 100.0 + seconds
        progress.tell("exact", seconds * 1800.0, seconds * 200)
    progress.tell("without costs", 0.0, 0)
    clock.now_s += 30.0
    progress.tell("without costs", 0.0, 30)
    assert capsys.readouterr().err.splitlines() == [
        "exact: 15.0 of 40.0 hours replayed, 6,000 decisions, 200 a second, about 50 s left",
        "exact: 30.0 of 40.0 hours replayed, 12,000 decisions, 200 a second, about 20 s left",
        "without costs: 0.0 of 40.0 hours replayed, 30 decisions, 1 a second",
    ]


def test_things_that_have_to_be_done_are_counted_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, out = Clock(monkeypatch), Output(json=False, level=0)
    progress = ReplayProgress(out, 150, unit=1.0, counted="hours simulated", done="tasks done")
    for done in (0, 100):
        progress.tell("max-min", done, 30 * done)
        clock.now_s += 30.0
    said = "max-min: 100 of 150 tasks done, 3,000 hours simulated, 100 a second, about 15 s left"
    assert capsys.readouterr().err.splitlines() == [said]


def test_quiet_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock, out = Clock(monkeypatch), Output(json=False, level=-1)
    progress = ReplayProgress(out, 3600.0)
    progress.tell("exact", 0.0, 0)
    clock.now_s += 99.0
    progress.tell("exact", 10.0, 5)
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar_with_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    clock, out = Clock(monkeypatch), Output(json=False, level=0)
    progress = ReplayProgress(out, 40 * 3600.0)
    progress.tell("exact", 0.0, 0)
    clock.now_s += 2.0
    progress.tell("exact", 7200.0, 900)
    clock.now_s += 0.01
    progress.tell("exact", 7300.0, 901)  # too soon to draw
    bars = progress.bars
    assert bars is not None
    (bar,) = bars.tasks
    assert (bar.description, bar.completed, bar.total) == ("exact, hours replayed, 450 decisions/s", 2.0, 40.0)
    bars.stop()


def test_replays_side_by_side_have_a_bar_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    clock, progress = Clock(monkeypatch), ReplayProgress(Output(json=False, level=0), 40 * 3600.0)
    for name, hours in (("exact", 0), ("without costs", 0), ("exact", 20), ("without costs", 10)):
        progress.tell(name, hours * 3600.0, 90 * hours)
        clock.now_s += 2.0
    bars = progress.bars
    assert bars is not None
    assert [(each.description, each.completed) for each in bars.tasks] == [
        ("exact, hours replayed, 450 decisions/s", 20.0),
        ("without costs, hours replayed, 225 decisions/s", 10.0),
    ]
    bars.stop()
