"""sinfo, polled again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import BadInput, EventLog, NodeState
from bftrain_datasets.importing.text_cells import state_of
from bftrain_datasets.log.idle_doubts import doubts_of
from bftrain_datasets.readers import sinfo
from tests.helpers.records import busy_node_s, finding, imported, kinds
from tests.helpers.samples import DAY
from tests.helpers.scheduler_lines import iso, poll, shown

IDLE, BUSY, DOWN = NodeState.IDLE, NodeState.BUSY, NodeState.DOWN


def states(log: EventLog, time_s: float) -> dict[str, NodeState]:
    return {name: NodeState(state) for name, state in zip(log.node_names, log.states_at(time_s).tolist(), strict=True)}


def test_a_state_holds_until_the_next_poll(tmp_path: Path) -> None:
    text = (
        poll(DAY, shown("idle", "n[1-3]"))
        + poll(DAY + 60, shown("alloc", "n[1-2]"), shown("idle", "n3"))
        + poll(DAY + 120, shown("idle", "n[1-3]"))
    )
    found = imported(tmp_path, text)
    assert found.format == "sinfo"
    assert found.rows.used == found.rows.read == 4
    assert (found.log.start_s, found.log.end_s) == (DAY, DAY + 120)
    assert states(found.log, DAY + 59) == {"n1": IDLE, "n2": IDLE, "n3": IDLE}
    assert states(found.log, DAY + 60) == {"n1": BUSY, "n2": BUSY, "n3": IDLE}
    assert busy_node_s(found.log) == 2 * 60


@pytest.mark.parametrize(
    ("texts", "state"),
    [
        ("idle idle~ idle# IDLE planned plnd idle- idle+cloud idle+planned idle+cloud+powered_down", IDLE),
        ("alloc allocated alloc* mix mixed mix~ mix- comp completing resv drng draining drng* mixed+drain", BUSY),
        ("idle* idle% idle! idle$ idle@ idle^ idle+drain idle+cloud+not_responding down down* down~ drain", DOWN),
        ("drained maint fail unk unknown boot pow_dn pow_up futr inval npc drain* down+drain", DOWN),
        ("n1 up 3 node idling", None),
    ],
)
def test_states(texts: str, state: NodeState | None) -> None:
    assert {text: state_of(text) for text in texts.split()} == dict.fromkeys(texts.split(), state)


@pytest.mark.parametrize(
    "when",
    [
        "t: Sun Sep 13 12:26:40 UTC 2020",
        "Sun Sep 13 12:26:40 2020",
        "Sun Sep 13 02:26:40 PM CEST 2020",
        "Sun 13 Sep 2020 12:26:40 PM UTC",
        "2020-09-13T12:26:40",
        "=== 2020-09-13 12:26:40 ===",
        "date: 2020-09-13 14:26:40+02:00",
        "2020-09-13 12:26:40.000 UTC",
        "Sun, 13 Sep 2020 14:26:40 +0200",
        "1600000000",
        "time=1600000000.0",
        "1600000000000",
    ],
)
def test_ways_to_say_when(tmp_path: Path, when: str) -> None:
    text = poll(when, shown("idle", "n1")) + poll(DAY + 60, shown("alloc", "n1"))
    zone = "+02:00" if "CEST" in when else None
    assert imported(tmp_path, text, timezone=zone).log.start_s == DAY


def test_times_without_a_zone_are_a_doubt(tmp_path: Path) -> None:
    text = poll(iso(DAY), shown("idle", "n1")) + poll(iso(DAY + 60), shown("alloc", "n1"))
    assert "local_times" in kinds(imported(tmp_path, text))
    assert imported(tmp_path, text, timezone="+01:00").log.start_s == DAY - 3600


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("", "idle n[1-2]"),
        ("", "n[1-2] idle"),
        ("", "main* up infinite 2 idle n[1-2]"),
        ("STATE NODELIST", "idle n[1-2]"),
        ("NODELIST STATE", "n[1-2] idle"),
        ("NODELIST      NODES PARTITION       STATE", "n[1-2]  2  main*  idle"),
        ("PARTITION|AVAIL|STATE|NODELIST", "main*|up|idle|n[1-2]"),
        ("HOSTNAMES STATE REASON", "n[1-2] idle not known to me"),
        (
            "PARTITION AVAIL TIMELIMIT JOB_SIZE ROOT OVERSUBS GROUPS NODES STATE NODELIST",
            "m up 1 1 no NO all 2 idle n[1-2]",
        ),
    ],
)
def test_columns(tmp_path: Path, header: str, row: str) -> None:
    text = poll(DAY, row, header=header) + poll(DAY + 60, row.replace("idle", "alloc"), header=header)
    found = imported(tmp_path, text)
    assert states(found.log, DAY) == {"n1": IDLE, "n2": IDLE}
    assert states(found.log, DAY + 60) == {"n1": BUSY, "n2": BUSY}


def test_a_row_a_node(tmp_path: Path) -> None:
    text = poll(DAY, "n1 1 main* idle", "n2 1 main* mix", "n2 1 debug mix", header="")
    found = imported(tmp_path, text + poll(DAY + 60, "n1 1 main* idle", "n2 1 main* idle", header=""))
    assert states(found.log, DAY) == {"n1": IDLE, "n2": BUSY}


def test_columns_that_the_options_name(tmp_path: Path) -> None:
    text = poll(DAY, "main n1 idle", header="") + poll(DAY + 60, "main n1 mix", header="")
    found = imported(tmp_path, text, format="sinfo", columns=("partition", "nodelist", "state"))
    assert states(found.log, DAY) == {"n1": IDLE}


def test_a_node_in_several_partitions_is_what_leaves_it_least(tmp_path: Path) -> None:
    rows = shown("idle", "n[1-3]"), shown("alloc", "n1", "debug"), shown("maint", "n2", "debug")
    log = imported(tmp_path, poll(DAY, *rows) + poll(DAY + 60, *rows)).log
    assert states(log, DAY) == {"n1": BUSY, "n2": DOWN, "n3": IDLE}


def test_nodes_of_a_preemptible_partition_alone_are_idle(tmp_path: Path) -> None:
    rows = shown("alloc", "n1"), shown("alloc", "n[1-2]", "pilot"), shown("drain", "n3", "pilot")
    log = imported(tmp_path, poll(DAY, *rows) + poll(DAY + 60, *rows), preemptible=("pilot",)).log
    assert states(log, DAY) == {"n1": BUSY, "n2": IDLE, "n3": DOWN}


def test_nodes_that_a_poll_does_not_list_are_down(tmp_path: Path) -> None:
    text = (
        poll(DAY, shown("idle", "n[1-2]"))
        + poll(DAY + 60, shown("idle", "n1"))
        + poll(DAY + 120, shown("idle", "n[1-3]"))
    )
    found = imported(tmp_path, text)
    assert states(found.log, DAY) == {"n1": IDLE, "n2": IDLE, "n3": DOWN}
    assert states(found.log, DAY + 60) == {"n1": IDLE, "n2": DOWN, "n3": DOWN}
    assert states(found.log, DAY + 120) == {"n1": IDLE, "n2": IDLE, "n3": IDLE}
    assert finding(found, "missing_nodes").count == 2
    assert finding(found, "missing_nodes").first.endswith(":6")


def test_a_node_that_a_later_file_no_longer_lists_is_down(tmp_path: Path) -> None:
    found = imported(
        tmp_path,
        poll(DAY, shown("idle", "n[1-2]")) + poll(DAY + 60, shown("idle", "n[1-2]")),
        poll(DAY + 120, shown("idle", "n1")) + poll(DAY + 180, shown("idle", "n1")),
    )
    assert states(found.log, DAY + 60) == {"n1": IDLE, "n2": IDLE}
    assert states(found.log, DAY + 120) == {"n1": IDLE, "n2": DOWN}


def test_gaps_between_polls(tmp_path: Path) -> None:
    times = [0, 60, 120, 180, 361, 421]
    found = imported(tmp_path, "".join(poll(DAY + time, shown("idle", "n[1-2]")) for time in times))
    assert finding(found, "poll_gap").count == 1
    assert finding(found, "poll_gap").node_s == 2 * 181
    assert finding(found, "poll_gap").first.endswith(":14")
    assert found.log.idle_share == 1  # the last seen state goes on


def test_idle_time_between_polls_that_lie_far_apart_is_doubtful(tmp_path: Path) -> None:
    first = poll(DAY, shown("alloc", "n1"), shown("idle", "n2"))
    later = [poll(DAY + time, shown("idle", "n[1-2]")) for time in (60, 120, 180, 361, 421)]
    causes = doubts_of(imported(tmp_path, first + "".join(later)).log).causes
    # The second node was idle all the time, which comes first
    assert causes == {"always_idle": pytest.approx(421 / 3600), "poll_gap": pytest.approx(181 / 3600)}


def test_a_poll_that_failed_is_none(tmp_path: Path) -> None:
    failed = poll(DAY + 60, "slurm_load_partitions: Unable to contact slurm controller (connect failure)", header="")
    found = imported(tmp_path, poll(DAY, shown("idle", "n1")) + failed + poll(DAY + 120, shown("alloc", "n1")))
    assert found.rows.aside == {"malformed": 1}
    assert found.log.idle_node_s == 120


def test_a_clock_that_goes_backwards(tmp_path: Path) -> None:
    text = (
        poll(DAY, shown("idle", "n[1-2]"))
        + poll(DAY + 100, shown("alloc", "n1"), shown("idle", "n2"))
        + poll(DAY + 50, shown("idle", "n[1-2]"))
        + poll(DAY + 110, shown("idle", "n[1-2]"))
        + poll(DAY + 170, shown("idle", "n1"), shown("alloc", "n2"))
    )
    found = imported(tmp_path, text)
    assert finding(found, "clock_step").count == 1
    assert states(found.log, DAY + 110) == {"n1": IDLE, "n2": IDLE}
    assert found.log.end_s == DAY + 170


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    rows = [
        shown("idle", "n1"),
        shown("dozing", "n2"),
        shown("idle", "n[3-"),
        shown("n/a", ""),
        "main* up infinite",
        "CLUSTER: there",
    ]
    torn = [poll("t: Thu Foo 99:99:99", shown("idle", "n1")), shown("idle", "n1")]
    found = imported(tmp_path, poll(DAY, *rows) + poll(DAY + 60, shown("alloc", "n1")) + "".join(torn))
    assert found.rows.aside == {"bad_state": 1, "bad_nodes": 1, "other_record": 1, "malformed": 2, "bad_time": 3}
    assert found.rows.used == 2
    assert found.log.node_names == ("n1",)


def test_only_the_nodes_that_are_asked_for(tmp_path: Path) -> None:
    text = poll(DAY, shown("idle", "n[1-3]")) + poll(DAY + 60, shown("alloc", "n[1-3]"))
    found = imported(tmp_path, text, nodes=("n3", "n1", "n7"))
    assert states(found.log, DAY) == {"n3": IDLE, "n1": IDLE, "n7": DOWN}
    assert finding(found, "unknown_nodes").count == 1


def test_numbers_of_nodes_with_and_without_zeros(tmp_path: Path) -> None:
    text = poll(DAY, shown("idle", "n[8-11],n[008-011]-x,m1")) + poll(DAY + 60, shown("alloc", "n[10,008],n9"))
    log = imported(tmp_path, text).log
    assert set(log.node_names) == {*("n8", "n9", "n10", "n11", "n008-x", "n009-x", "n010-x", "n011-x", "m1", "n008")}
    assert {name for name, state in states(log, DAY + 60).items() if state == BUSY} == {"n10", "n008", "n9"}


def test_one_look_at_a_machine_is_no_log(tmp_path: Path) -> None:
    text = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n" + shown("idle", "n1")
    assert not sinfo.recognises(text.encode())
    with pytest.raises(BadInput):
        imported(tmp_path, text, format="sinfo")
