"""What the intake makes of a job: one outcome each, the same for all formats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bftrain import BadInput, BadValue, ImportOptions, NodeState
from bftrain_datasets.importing import job_columns as stays_module
from bftrain_datasets.importing import machine_nodes
from bftrain_datasets.importing.job_checks import RUNNING, RecordIntake
from bftrain_datasets.importing.job_columns import JobStays, file_and_line, place_of
from tests.helpers.records import busy_node_s, finding, imported

DAY = 1_700_000_000.0


def given(**options: object) -> RecordIntake:
    intake = RecordIntake(ImportOptions(**options))  # type: ignore[arg-type]  # any of its fields
    intake.begin_file("jobs")
    return intake


def outcome(
    intake: RecordIntake,
    start_s: float | None,
    end_s: float | None,
    nodes: str,
    **more: Any,  # noqa: ANN401 - see Intake.job
) -> tuple[str, float]:
    """Return what became of one job: "used" or the reason, and the node-seconds that were counted for that."""
    before = {each.name: each.node_s for each in intake.findings()}
    aside = intake.aside.copy()
    intake.row(intake.line + 1)
    intake.job("1", start_s, end_s, nodes, **more)
    intake.rows()
    reasons = intake.aside - aside
    if not reasons:
        return "used", 0.0
    (reason,) = reasons
    return reason, {each.name: each.node_s for each in intake.findings()}[reason] - before.get(reason, 0.0)


@pytest.mark.parametrize(
    ("start_s", "end_s", "nodes", "expected"),
    [
        (DAY, DAY + 10, "n1", ("used", 0.0)),
        (DAY, RUNNING, "n1", ("used", 0.0)),
        (None, DAY, "n1", ("no_start", 0.0)),
        (None, None, "", ("never_started", 0.0)),
        (DAY, None, "n1", ("no_end", 0.0)),
        (DAY, DAY, "n1", ("zero_length", 0.0)),
        (DAY, DAY - 1, "n1", ("backwards", 0.0)),
        (DAY, DAY + 10, "", ("no_nodes", 0.0)),
        (DAY, DAY + 10, "n[", ("bad_nodes", 0.0)),
        (math.nan, DAY, "n1", ("bad_time", 0.0)),
        (DAY, math.nan, "n1", ("bad_time", 0.0)),
        (-math.inf, DAY, "n1", ("bad_time", 0.0)),
        (math.inf, DAY, "n1", ("bad_time", 0.0)),
        (math.inf, math.inf, "n1", ("bad_time", 0.0)),
        (DAY, -math.inf, "n1", ("backwards", 0.0)),
    ],
)
def test_each_job_has_one_outcome(start_s: float, end_s: float, nodes: str, expected: tuple[str, float]) -> None:
    intake = given()
    assert outcome(intake, start_s, end_s, nodes) == expected
    assert len(intake.stays) == (expected[0] == "used")


def test_node_time_of_what_is_set_aside_is_reported() -> None:
    assert outcome(given(), DAY, DAY + 10, "", count=3) == ("no_nodes", 30.0)
    preemptible = given(preemptible=("scavenge",))
    assert outcome(preemptible, DAY, DAY + 10, "n[1-4]", queue="scavenge") == ("preemptible", 40.0)
    assert outcome(preemptible, DAY, RUNNING, "n[1-4]", queue="scavenge") == ("preemptible", 0.0)
    assert outcome(preemptible, DAY, DAY + 10, "n[1-4]", queue="main") == ("used", 0.0)
    assert preemptible.node_names == ("n1", "n2", "n3", "n4")  # nodes of preemptible jobs are nodes of the machine


def test_a_window_sets_aside_what_does_not_reach_into_it() -> None:
    intake = given(window=(DAY, DAY + 100))
    assert outcome(intake, DAY - 10, DAY, "n1") == ("outside_window", 10.0)
    assert outcome(intake, DAY + 100, DAY + 101, "n1") == ("outside_window", 1.0)
    assert outcome(intake, DAY + 100, RUNNING, "n1") == ("outside_window", 0.0)
    assert outcome(intake, DAY - 10, DAY + 1, "n1") == ("used", 0.0)
    assert outcome(intake, DAY + 99, RUNNING, "n1") == ("used", 0.0)
    assert outcome(given(window=(None, DAY)), DAY, DAY + 1, "n1") == ("outside_window", 1.0)


def test_nodes_of_the_machine_and_others() -> None:
    intake = given(nodes=("n1", "n2"))
    assert outcome(intake, DAY, DAY + 10, "n[3-4]", count=2) == ("other_nodes", 20.0)
    assert outcome(intake, DAY, DAY + 10, "n[2-5],n3,n2") == ("used", 0.0)
    found = {each.name: (each.count, each.node_s) for each in intake.findings()}
    assert found["unknown_nodes"] == (3, 30.0)
    assert found["repeated_hosts"] == (2, 0.0)
    assert intake.node_names == ("n1", "n2")
    assert intake.stays.columns().sizes.tolist() == [1]


def test_counts_want_no_names() -> None:
    intake = given(counts=True)
    assert outcome(intake, DAY, DAY + 10, "n[1-4]", count=4) == ("used", 0.0)
    assert outcome(intake, DAY, DAY + 10, "", count=0) == ("no_nodes", 0.0)
    assert outcome(intake, DAY, DAY + 10, "", count=-4) == ("bad_count", 0.0)
    assert outcome(intake, DAY, DAY + 10, "", count=2**70) == ("bad_count", 0.0)
    assert intake.node_names == ()


def test_what_is_worth_a_note() -> None:
    intake = given()
    outcome(intake, DAY, DAY + 10, "n[1-2]", preempted=True)
    found = {each.name: (each.count, each.node_s) for each in intake.findings()}
    assert found == {"preempted_jobs": (1, 20.0)}


def test_the_records_reach_as_far_as_any_row_shows() -> None:
    intake = given()
    assert intake.last_s == -math.inf
    outcome(intake, DAY, RUNNING, "n1")
    assert intake.last_s == DAY
    outcome(intake, DAY - 50, DAY + 10, "n1")
    outcome(intake, DAY + 5, DAY + 6, "n1")
    assert intake.last_s == DAY + 10
    intake.observed(DAY + 3)
    assert intake.last_s == DAY + 10


def test_a_set_is_expanded_once_and_kept_only_when_used() -> None:
    calls: list[str] = []

    def expand(text: str) -> Sequence[str]:
        calls.append(text)
        return text.split("+")

    intake = given()
    for end_s in (DAY, DAY + 1, DAY + 2):
        outcome(intake, DAY, end_s, "a+b", expand=expand)
    intake.begin_file("more jobs")
    outcome(intake, DAY, DAY + 3, "a+b", expand=expand)
    assert calls == ["a+b"]
    columns = intake.stays.columns()
    assert columns.set_nodes.tolist() == [0, 1]
    assert columns.sets.tolist() == [0, 0, 0]
    assert [file_and_line(place) for place in columns.place.tolist()] == [(1, 2), (1, 3), (2, 1)]


def test_memory_does_not_grow_with_rows_that_are_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_nodes, "MOST_KNOWN", 1000)
    intake = given(window=(DAY, None))
    for number in range(5000):
        assert outcome(intake, DAY - 10, DAY - 5, f"n{number % 100},n{number % 77}")[0] == "outside_window"
        assert len(intake.machine.known_sets) < 500
    assert intake.stays.columns().set_nodes.size == 0


def test_a_machine_has_a_million_nodes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine_nodes.MOST_NODES == 1_000_000
    monkeypatch.setattr(machine_nodes, "MOST_NODES", 1000)  # which takes less time to try
    intake = given()
    outcome(intake, DAY, DAY + 1, "n[1-1000]")
    with pytest.raises(BadInput, match=r"jobs:2: more than 1,000 different nodes \(name --nodes\)"):
        outcome(intake, DAY, DAY + 1, "one-more")


def test_states_of_nodes_that_the_options_do_not_name() -> None:
    intake = given(nodes=("n1",))
    intake.row(1)
    intake.state(DAY, ["n1", "n2"], NodeState.IDLE)
    intake.use()
    assert [(each.name, each.count) for each in intake.findings()] == [("unknown_nodes", 1)]
    assert intake.states.build(end_s=DAY + 1).node_names == ("n1",)


def test_nodes_can_be_named_that_no_job_holds() -> None:
    intake = given()
    intake.name_node("spare")
    intake.name_node("spare")
    assert intake.node_names == ("spare",)
    fixed = given(nodes=("n1",))
    fixed.name_node("spare")
    assert fixed.node_names == ("n1",)


def test_too_many_pairs_are_refused_before_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stays_module, "MOST_PAIRS", 10)
    stays = JobStays()
    numbers = {"start_s": DAY, "end_s": DAY + 1, "job": "1", "place": place_of(1, 1)}
    whole = stays.add_set([0, 1, 2, 3, 4])
    for _ in range(2):
        stays.add(node_set=whole, count=5, **numbers)  # type: ignore[arg-type]  # numbers and a name
    with pytest.raises(BadInput, match=r"more than 10 pairs of a job and a node .import it in parts"):
        stays.add(node_set=whole, count=1, **numbers)  # type: ignore[arg-type]  # numbers and a name
    counted = JobStays()
    counted.add(node_set=-1, count=11, **numbers)  # type: ignore[arg-type]  # where only counts matter there are no pairs
    assert len(counted) == 1


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"nodes": ("a", "a")}, "nodes"),
        ({"nodes": ("",)}, "nodes"),
        ({"node_count": 0}, "node_count"),
        ({"min_gap_s": -1.0}, "min_gap_s"),
        ({"min_gap_s": math.nan}, "min_gap_s"),
        ({"downtime_after_s": 0.0}, "downtime_after_s"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], what: str) -> None:
    with pytest.raises(BadValue, match=what):
        ImportOptions(**options)


def test_options_tell_what_differs_from_the_rule() -> None:
    assert ImportOptions().to_dict() == {}
    options = ImportOptions(timezone="UTC", min_gap_s=5.0, window=(None, 1.0))
    assert options.to_dict() == {"timezone": "UTC", "min_gap_s": 5.0, "window": (None, 1.0)}


@pytest.mark.parametrize("nodes", ["[12, 13]", "['12', '13']", '["12","13"]', " 12, 13 "])
def test_node_sets_as_lists_and_with_blanks(nodes: str) -> None:
    intake = given()
    intake.row(1)
    intake.job("1", DAY, DAY + 9, nodes)
    assert intake.node_names == ("12", "13")


@pytest.mark.parametrize("nodes", ["[]", "[a!b]", "n 1", "[n[1-2], x]", "a,,b c"])
def test_what_is_no_list_of_nodes_is_refused(nodes: str) -> None:
    assert outcome(given(), DAY, DAY + 9, nodes)[0] == "bad_nodes"


def test_jobs_on_spellings_of_a_node_share_it(tmp_path: Path) -> None:
    rows = "".join(f"{at}|{DAY + at}|{DAY + at + 10}|{name}\n" for at, name in enumerate(("n7", "N7", "n8", "n7.c")))
    found = imported(tmp_path, f"JobID|Start|End|NodeList\n{rows}")
    assert found.log.node_names == ("n7", "n8")
    assert busy_node_s(found.log) == 13 + 10
    assert finding(found, "node_spellings").count == 2
