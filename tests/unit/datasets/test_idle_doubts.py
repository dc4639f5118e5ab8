"""Doubts about a log's idle time are stored when it is imported, and hold for any part of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bftrain import EventLog, NodeState, load_log, save_log
from bftrain_datasets.importing.anonymise import anonymised
from bftrain_datasets.log.idle_doubts import (
    COUNTS,
    RECORDS,
    SIMULATED,
    DoubtfulStays,
    IdleDoubts,
    doubtful_nodes,
    doubts_of,
)
from bftrain_datasets.log.provenance import DoubtfulTime, LogFinding, LogProvenance
from tests.helpers.records import finding, imported
from tests.helpers.transitions import log_from_transitions

HOUR = 3600.0
KEY = b"0" * 32


def log_with(*doubtful: DoubtfulTime, findings: tuple[LogFinding, ...] = ()) -> EventLog:
    """Four nodes that are idle for 10 h, from an hour after the epoch's billionth second."""
    changes = [(1e9, f"n{number}", NodeState.IDLE) for number in range(4)]
    provenance = LogProvenance(made_by="reader test", doubtful=doubtful, findings=findings)
    return log_from_transitions(changes, begin_s=1e9, end_s=1e9 + 10 * HOUR, provenance=provenance)


def doubtful(cause: str, *steps: tuple[float, int]) -> DoubtfulTime:
    times, nodes = zip(*steps, strict=True)
    return DoubtfulTime(cause=cause, of_nodes=4, times=tuple(1e9 + HOUR * at for at in times), nodes=tuple(nodes))


def test_what_is_doubtful_for_two_causes_is_counted_once() -> None:
    found = doubts_of(log_with(doubtful("suspected_downtime", (2, 4), (6, 0)), doubtful("censored_end", (5, 3))))
    assert found.causes == {"censored_end": 15.0, "suspected_downtime": 4 * 3 + 1.0}
    assert (found.idle_node_h, found.share) == (40.0, 28 / 40)
    assert found.sentence == (
        "40 idle node-hours, of which 12 are sure; 28 doubtful: 15 after the last recorded jobs: later jobs "
        "may be missing; 13 suspected downtime, as no node ran a job"
    )


@pytest.mark.parametrize(
    ("idle_h", "causes", "sentence"),
    [
        (
            200.0,
            {"always_idle": 3.0},
            "200 idle node-hours, of which 197 are sure; 3 doubtful: 3 on nodes that ran no job in this time",
        ),
        (
            9.0,
            {"over_capacity": 9.0},
            "9 idle node-hours, of which none is sure; 9 doubtful: 9 as more nodes were in use than the machine has",
        ),
        (
            1.0,
            {"always_idle": 0.5},
            "1 idle node-hour, of which 0.5 are sure; 0.5 doubtful: 0.5 on nodes that ran no job in this time",
        ),
        (
            2.0,
            {"always_idle": 1.0},
            "2 idle node-hours, of which 1 is sure; 1 doubtful: 1 on nodes that ran no job in this time",
        ),
        (
            2e6,
            {"always_idle": 1500.0, "censored_end": 1.0},
            (
                "2,000,000 idle node-hours, of which 1,998,499 are sure; 1,501 doubtful: 1,500 on nodes that ran "
                "no job in this time"
            ),
        ),
        (
            0.25,
            {"simulated": 0.15, "censored_end": 0.1},
            (
                "0.25 idle node-hours, of which none is sure; 0.25 doubtful: 0.15 left by a simulated schedule; "
                "0.1 after the last recorded jobs: later jobs may be missing"
            ),
        ),
        (4e6, {"always_idle": 1.0}, ""),
        (0.0, {}, ""),
    ],
)
def test_the_sentence_is_good_english(idle_h: float, causes: dict[str, float], sentence: str) -> None:
    found = IdleDoubts(source=RECORDS, idle_node_h=idle_h, causes=causes)
    assert found.sentence == sentence
    assert found.caveats == ((sentence,) if sentence else ())


def test_a_part_has_the_doubts_of_its_time_and_in_proportion_those_of_its_nodes() -> None:
    log = log_with(doubtful("censored_end", (4, 2), (8, 4)))
    assert doubts_of(log.select(window=(1e9, 1e9 + 4 * HOUR))).causes == {}
    assert doubts_of(log.select(window=(1e9 + 3 * HOUR, 1e9 + 9 * HOUR))).causes == {"censored_end": 4 * 2.0 + 4.0}
    assert doubts_of(log.select(nodes=slice(0, 2))).causes == {"censored_end": 4 * 1.0 + 2 * 2.0}


def test_stays_that_overlap_add_up_to_all_nodes_at_most_and_are_cut_to_the_log() -> None:
    log = log_with()
    stays = DoubtfulStays()
    for begin, end, nodes in ((-5, 1, 2), (0.5, 2, 3), (9, float("inf"), 1), (20, 30, 4), (3, 3, 1), (4, 5, 0)):
        stays.add("rows_aside", 1e9 + HOUR * begin, 1e9 + HOUR * end, nodes)
    (curve,) = stays.curves(log)
    assert dict(zip(((np.array(curve.times) - 1e9) / HOUR).tolist(), curve.nodes, strict=True)) == {
        0.0: 2,
        0.5: 4,
        1.0: 3,
        2.0: 0,
        9.0: 1,
        10.0: 0,
    }
    kept = replace(log, provenance=LogProvenance(doubtful=(curve,)))
    assert doubts_of(kept).causes == {"rows_aside": 0.5 * 2 + 0.5 * 4 + 3 + 1}
    assert not list(DoubtfulStays().curves(log))


def test_no_more_is_doubtful_than_was_idle() -> None:
    busy = log_from_transitions(
        [(0.0, "a", NodeState.IDLE), (HOUR, "a", NodeState.BUSY)],
        begin_s=0.0,
        end_s=4 * HOUR,
        provenance=LogProvenance(
            doubtful=(
                DoubtfulTime(cause="censored_end", of_nodes=1, times=(0.0,), nodes=(1,)),
                DoubtfulTime(cause="over_capacity", of_nodes=1, times=(HOUR,), nodes=(5,)),
            )
        ),
    )
    assert doubts_of(busy).causes == {"censored_end": 1.0}
    assert doubts_of(log_with(doubtful("over_capacity", (0, 2), (1, 0)))).causes == {"over_capacity": 2.0}


@pytest.mark.parametrize(
    ("finding", "source", "share", "words"),
    [
        ("derived", SIMULATED, 1.0, ("The log is a simulated schedule: no record tells which nodes were idle",)),
        (
            "which_unknown",
            COUNTS,
            0.0,
            ("The log is derived from counts of busy nodes: which ones are idle is assumed, which understates losses",),
        ),
        ("nodes_inferred", RECORDS, 0.0, ()),
    ],
)
def test_simulated_and_derived_logs_are_called_so(
    finding: str, source: str, share: float, words: tuple[str, ...]
) -> None:
    log = log_with(findings=(LogFinding(name=finding, count=1),))
    found = doubts_of(log)
    assert (found.source, found.share, found.caveats) == (source, share, words)
    assert not doubtful_nodes(log)[1].any()


@pytest.mark.parametrize("form", ["npz", "csv"])
def test_files_and_anonymous_logs_keep_them(form: str, tmp_path: Path) -> None:
    log = log_with(doubtful("censored_end", (4, 2), (8, 4)))
    save_log(log, tmp_path / f"log.{form}")
    assert doubts_of(load_log(tmp_path / f"log.{form}")) == doubts_of(log)
    assert doubts_of(anonymised(log, KEY, shift_times=True)) == doubts_of(log)


def test_an_import_stores_as_much_as_it_finds(tmp_path: Path) -> None:
    # Nothing runs from 1 h to 5 h; after that only one node works, and the other has its last job until 6 h
    jobs = ((0, 1, "a"), (0, 1, "b"), (5, 12, "a"), (5, 6, "b"))
    rows = (
        f"{number}|{1e9 + HOUR * at:.0f}|{1e9 + HOUR * to:.0f}|{node}" for number, (at, to, node) in enumerate(jobs)
    )
    made = imported(tmp_path, "JobID|Start|End|NodeList\n" + "\n".join(rows) + "\n")
    causes = doubts_of(made.log).causes
    assert causes == {"censored_end": pytest.approx(6.0), "suspected_downtime": pytest.approx(8.0)}
    assert causes == {name: pytest.approx(finding(made, name).node_s / HOUR) for name in causes}
    times, nodes = doubtful_nodes(made.log)
    assert dict(zip(((times - 1e9) / HOUR).tolist(), nodes.tolist(), strict=True)) == {0.0: 0, 1.0: 2, 5.0: 0, 6.0: 1}


def test_nodes_whose_first_job_comes_late_may_not_have_been_there_before(tmp_path: Path) -> None:
    day = 24 * HOUR
    jobs = [(each * day, "n1") for each in range(20)] + [(9 * day, "new[1-2]"), (6 * day, "n2"), (19.5 * day, "n2")]
    rows = "".join(
        f"{each}|{1e9 + start_s:.0f}|{1e9 + start_s + HOUR:.0f}|{nodes}\n" for each, (start_s, nodes) in enumerate(jobs)
    )
    text, window = f"JobID|Start|End|NodeList\n{rows}", (1e9, 1e9 + 20 * day)
    found = imported(tmp_path, text, window=window)
    assert (finding(found, "late_nodes").count, finding(found, "late_nodes").node_s) == (2, 18 * day)
    down_s = (day - HOUR) * 9  # nothing ran on any node
    assert doubts_of(found.log).causes["late_nodes"] == pytest.approx((18 * day - 2 * down_s) / HOUR)
    stated = imported(tmp_path, text, window=window, down_nodes=((("new1", "new2"), None, 1e9 + 9 * day),))
    assert "late_nodes" not in {each.name for each in stated.findings}
