"""Dumps that overlap: what one tells of a job while it ran, and another when it had ended."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from bftrain import Imported, NodeState
from tests.helpers.records import finding, imported, kinds

DAY = 86_400
START = 1_700_000_000
HEADER = "JobID|Start|End|State|NodeList\n"


def row(job: str, start: float, end: float | None, nodes: str, state: str = "") -> str:
    """Write one row of sacct; times are days from the start."""
    end_text = "Unknown" if end is None else f"{START + end * DAY:.0f}"
    return (
        f"{job}|{START + start * DAY:.0f}|{end_text}|{state or ('RUNNING' if end is None else 'COMPLETED')}|{nodes}\n"
    )


def idle_days(found: Imported, node: str) -> float:
    log = found.log
    place = log.node_names.index(node)
    bounds = [*log.times.tolist(), log.end_s]
    spans = itertools.pairwise(bounds)
    idle = sum(until - time_s for time_s, until in spans if log.states_at(time_s)[place] == NodeState.IDLE)
    return idle / DAY


JANUARY = HEADER + row("1", 0, 0.01, "n1") + row("2", 29, None, "n2") + row("3", 30, None, "n3")
FEBRUARY = HEADER + row("2", 29, 33, "n2") + row("3", 30, None, "n3") + row("4", 50, 51, "n1")


def test_a_job_that_ran_when_one_dump_was_made_ends_as_the_next_one_says(tmp_path: Path) -> None:
    made = [imported(tmp_path, *texts) for texts in itertools.permutations((JANUARY, FEBRUARY))]
    made.append(imported(tmp_path, JANUARY + FEBRUARY))  # in one file, one after the other
    for found in made:
        assert found.log.sha256 == made[0].log.sha256
        assert (found.log.start_s, found.log.end_s) == (START, START + 51 * DAY)
        assert idle_days(found, "n2") == pytest.approx(51 - 4)
        assert idle_days(found, "n3") == pytest.approx(30)  # it runs on in both
        assert finding(found, "still_running").count == 1
        assert "held_twice" not in kinds(found)
    assert made[0].rows.aside == {"told_before": 2}
    assert finding(made[0], "told_before").first == "0:3"
    assert made[2].rows.aside == {"told_before": 1, "duplicate": 1}  # within one file it is a doubt


def test_files_that_overlap_leave_no_doubt(tmp_path: Path) -> None:
    text = HEADER + row("1", 0, 0.5, "n[1-2]") + row("2", 0.5, 1, "n1,n2")
    found = imported(tmp_path, text, text)
    assert found.rows.aside == {"told_before": 2}
    assert finding(found, "told_before").node_s == 2 * DAY
    assert {each.name for each in found.doubts} <= {"censored_start", "no_node_states"}  # of so short a dump


def test_nothing_runs_on_when_all_that_seemed_to_have_ended(tmp_path: Path) -> None:
    found = imported(tmp_path, JANUARY, HEADER + row("2", 29, 33, "n2") + row("3", 30, 34, "n3"))
    assert "still_running" not in kinds(found)
    assert finding(found, "cut_end").count == 2  # and so what comes after may be missing
    assert finding(found, "censored_end").count == 1


def test_an_end_before_the_window_counts_too(tmp_path: Path) -> None:
    found = imported(tmp_path, JANUARY, FEBRUARY, window=(START + 40 * DAY, START + 60 * DAY))
    assert found.log.node_names == ("n1", "n2", "n3")
    assert idle_days(found, "n2") == pytest.approx(20)
    assert found.rows.aside == {"told_before": 2, "outside_window": 2}


def test_a_job_that_another_dump_shows_to_start_again_had_ended_before(tmp_path: Path) -> None:
    again = HEADER + row("2", 40, 45, "n4") + row("5", 50, 51, "n1")
    found = imported(tmp_path, JANUARY, again)
    assert finding(found, "restarted").count == 1
    assert finding(found, "restarted").first == "0:3"
    assert idle_days(found, "n2") == pytest.approx(29 + 11)
    assert imported(tmp_path, again, JANUARY).log.sha256 == found.log.sha256


def test_jobs_of_one_name_on_other_nodes_are_not_mixed_up(tmp_path: Path) -> None:
    found = imported(tmp_path, HEADER + row("7", 0, None, "n1") + row("7", 0, 1, "n2") + row("7", 0.01, 2, "n3"))
    assert idle_days(found, "n1") == 0
    assert found.rows.aside == {}


def test_counts_end_such_jobs_as_well(tmp_path: Path) -> None:
    found = imported(
        tmp_path,
        *(text.replace("|n", "|1|n").replace("|Node", "|NNodes|Node") for text in (JANUARY, FEBRUARY)),
        counts=True,
    )
    named = imported(tmp_path, JANUARY, FEBRUARY)
    busy = (
        found.log.span_s * len(found.log.node_names) - found.log.idle_node_s,
        named.log.span_s * 3 - named.log.idle_node_s,
    )
    assert busy[0] == pytest.approx(busy[1])


def test_a_full_machine_is_not_idle_before_the_days_of_the_dump(tmp_path: Path) -> None:
    """What sacct tells of some days: all that ran then, so of the time before only what lasted until then."""
    rows = [row(f"a{node}", -9 + node, 0.1 + node / 10, f"n{node}") for node in range(1, 9)]
    rows += [row(f"b{node}", 0.1 + node / 10, None if node % 2 else 6, f"n{node}") for node in range(1, 9)]
    rows += [row(f"c{node}", 6, None, f"n{node}") for node in range(2, 9, 2)]
    found = imported(tmp_path, HEADER + "".join(rows))
    assert found.log.idle_node_s == 0
    assert found.log.start_s == pytest.approx(START + 0.2 * DAY)
    assert finding(found, "censored_start").count == 8


def test_records_of_starts_know_all_from_the_first_one_on(tmp_path: Path) -> None:
    times = (START, START, START + 5 * DAY, START + 6 * DAY)
    kinds_of = ("S", "S", "E", "S")
    ends = ("", "", f" end={START + 5 * DAY}", "")
    starts = (START, START, START, START + 6 * DAY)
    hosts = ("n1/0", "n2/0", "n1/0", "n1/0")
    text = "".join(
        f"11/{14 + (time_s - START) // DAY}/2023 22:13:20;{kind};{1 + (host == 'n2/0') + 2 * (place == 3)}.s;"
        f"queue=w start={start} exec_host={host}{end}\n"
        for place, (time_s, kind, start, host, end) in enumerate(zip(times, kinds_of, starts, hosts, ends, strict=True))
    )
    found = imported(tmp_path, text)
    assert found.log.start_s == START
    assert "censored_start" not in kinds(found)
