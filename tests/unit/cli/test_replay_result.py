"""What ``bftrain replay`` ends with: the figures that matter and a picture, on one screen of any size."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from msgspec.structs import replace
from rich.console import Console

from bftrain import ReplaySettings
from bftrain_replay.accounting.decision_log import TimeSpread
from bftrain_replay.commands.replay_result import _decision_time, in_words, replays
from bftrain_replay.results.headline import headline_of
from bftrain_replay.results.result import MeasuredTimings
from bftrain_replay.simulation.task_progress import SampleLoss
from bftrain_replay.study import ReplayStudy, study
from tests.helpers.program import ANSI
from tests.unit.replay.cases import log_of, task

LOG = log_of((0.0, "abcdefgh", ""), (100.0, "", "b"), (150.0, "b", ""), (700.0, "", "ae"), end_s=1000.0)
TASKS = [
    task("quick", work_samples=900.0, start_cost_s=7.0, shrink_cost_s=3.0),
    task("long", rate=(5.0, 9.0, 12.0), grow_cost_s=20.0, shrink_cost_s=10.0, submit_s=50.0),
    task("wide", rate=(1.0, 1.0, 1.0, 1.0, 40.0), min_nodes=5, submit_s=400.0),
]


@pytest.fixture(scope="module")
def done() -> ReplayStudy:
    return study(LOG, TASKS, ReplaySettings(), baseline="equal-share")


def printed(
    what: ReplayStudy, width: int = 80, *, terminal: bool = True, encoding: str = "utf-8", **environment: str
) -> str:
    octets = io.BytesIO()
    file = io.TextIOWrapper(octets, encoding=encoding)
    given = {"TERM": "xterm-256color", **environment}
    console = Console(file=file, force_terminal=terminal or None, width=width, _environ=given, highlight=False)
    console.print(in_words(what, "log.npz with tasks.toml"))
    file.flush()
    return octets.getvalue().decode(encoding)


def rows(text: str) -> dict[str, list[str]]:
    cells = (re.split(r"\s{2,}", line.strip()) for line in ANSI.sub("", text).splitlines() if line.strip())
    return {first: others for first, *others in cells}


def test_it_fits_on_a_screen_of_24_lines(done: ReplayStudy) -> None:
    lines = ANSI.sub("", printed(done)).splitlines()
    assert len(lines) <= 24 - 2  # a line that says where the result is, and the prompt
    assert max(map(len, lines)) <= 80
    assert lines[0] == "log.npz with tasks.toml: 2.0 idle node-hours, 91.9 % of the node-time"
    assert lines[1].startswith("Harvest: ")
    assert lines[2] == "Assumed: progress is kept in memory, and on disk every 60 s (--progress memory)"
    assert lines[3].split() == ["exact", "equal-share", "without", "costs"]


def test_the_figures_are_those_of_the_replays(done: ReplayStudy) -> None:
    shown_rows = rows(printed(done))
    results = list(replays(done).values())
    assert [each.settings.solver for each in results] == ["exact", "equal-share", "exact"]
    assert shown_rows["efficiency U"] == [f"{100 * (each.efficiency or 0):.1f} %" for each in results]
    assert shown_rows["idle node-time used"] == [f"{100 * (each.coverage or 0):.1f} %" for each in results]
    assert shown_rows["tasks finished"] == [f"{each.tasks_finished} of 3" for each in results]
    for result, cell in zip(results, shown_rows["decision time, median / p99"], strict=True):
        spread = result.timings().decide_ms
        median, slow = map(float, cell.removesuffix(" ms").split(" / "))
        assert (median, slow) == (
            pytest.approx(spread.p50, rel=0.05, abs=0.05),
            pytest.approx(spread.p99, rel=0.05, abs=0.05),
        )


def test_shares_that_stand_together_are_of_the_same_and_add_up(done: ReplayStudy) -> None:
    result, figures = done.result, done.result.summary()
    lost = sum(result.lost_share(loss) or 0.0 for loss in result.lost_node_s)
    assert headline_of(figures).harvest_share == pytest.approx((result.coverage or 0.0) - lost)
    shown = rows(printed(done))
    assert shown["lost to preemption"][0] == f"{100 * (result.lost_share(SampleLoss.PREEMPTION) or 0):.1f} %"


@pytest.mark.parametrize(
    ("median_s", "slow_s", "said"),
    [
        (0.00004, 0.00069, "0.04 / 0.69 ms"),
        (0.00069, 0.0124, "  0.69 / 12 ms"),
        (0.00069, 0.124, " 0.69 / 124 ms"),
        (0.0105, 0.9, "   10 / 900 ms"),
        (0.0105, 1.24, " 10 ms / 1.2 s"),
        (1.5, 124.0, " 1.5 s / 124 s"),
    ],
)
def test_columns_are_as_wide_on_any_machine(done: ReplayStudy, median_s: float, slow_s: float, said: str) -> None:
    class Timed:
        def timings(self) -> MeasuredTimings:
            spread = TimeSpread(p50=1000 * median_s, p99=1000 * slow_s, max=1000 * slow_s)
            return replace(done.result.timings(), decide_ms=spread)

    assert _decision_time(Timed()) == said  # type: ignore[arg-type]  # all that is asked of a result


def test_the_largest_reasons_for_nodes_unused_are_named(done: ReplayStudy) -> None:
    shown_rows = [label for label in rows(printed(done)) if label.startswith("unused: ")]
    shares = {
        "unused: no task left": done.result.unused_node_s["no_task"],  # type: ignore[index]  # a StrEnum is its word
        "unused: tasks are full": done.result.unused_node_s["at_maximum"],  # type: ignore[index]
        "unused: too few nodes": done.result.unused_node_s["below_minimum"],  # type: ignore[index]
    }
    assert 1 <= len(shown_rows) <= 2
    assert shown_rows[0] == max(shares, key=lambda name: shares[name])


def test_nothing_unused_needs_no_row(done: ReplayStudy) -> None:
    none = dict.fromkeys(done.result.unused_node_s, 0.0)
    clean = {name: replace(getattr(done, name), unused_node_s=none) for name in ("result", "baseline", "ceiling")}
    assert not [label for label in rows(printed(replace(done, **clean))) if label.startswith("unused")]


@pytest.mark.parametrize("width", [24, 40, 60, 80, 250])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_no_screen_is_overrun(done: ReplayStudy, width: int, encoding: str) -> None:
    text = ANSI.sub("", printed(done, width, encoding=encoding))
    assert max(map(len, text.splitlines())) <= width
    for words in ("exact", "harvest", "median"):
        assert words in text
    assert ("█" in text) is (encoding == "utf-8")
    assert ("nodes: # used" in text) is (encoding == "ascii")


def test_colours_are_for_terminals_that_have_them(done: ReplayStudy) -> None:
    assert "\x1b[34m" in printed(done)
    assert "\x1b[3" not in printed(done, NO_COLOR="1")
    assert "\x1b" not in printed(done, terminal=False)
    dumb = printed(done, TERM="dumb")
    assert "\x1b[34m" not in dumb
    assert "nodes: # used, : idle" in dumb


def test_what_was_not_reached_has_no_column() -> None:
    part = study(LOG, TASKS, ReplaySettings(), baseline="equal-share", watch=lambda _name, at_s, _: at_s < 100.0)
    screen = printed(part)
    assert "equal-share" not in screen
    assert "efficiency U" not in rows(screen)
    assert np.isclose(part.result.simulated_s, 100.0)


def test_a_log_in_which_nothing_is_idle_has_no_picture() -> None:
    screen = printed(study(log_of(end_s=100.0), TASKS, ReplaySettings()))
    assert rows(screen)["idle node-time used"][0] == "-"
    assert "nodes:" not in screen


def test_where_tasks_have_users_their_campaigns_are_shown() -> None:
    tasks = [replace(each, user=user) for each, user in zip(TASKS, ("ann", "bob", "ann"), strict=True)]
    shown_rows = rows(printed(study(LOG, tasks[:1], ReplaySettings())))
    # Two nodes at 18 samples/s take 50 s for the work of the quick one, and 7 s to start
    assert shown_rows["campaign stretch, mean/max"] == ["1.14 / 1.14", "1 / 1"]
    assert "campaign stretch, mean/max" not in rows(printed(study(LOG, TASKS, ReplaySettings())))
    assert "campaign stretch, mean/max" not in rows(printed(study(LOG, tasks[1:], ReplaySettings())))  # none ended
