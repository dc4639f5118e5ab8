"""Moab's events and Maui's traces, of our own making after their manuals."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.records import busy_node_s, finding, idle_second_by_second, imported
from tests.helpers.samples import DAY, maui_trace, moab_event

RUNS = [(DAY, DAY + 60, "ab"), (DAY + 70, DAY + 100, "a"), (DAY + 20, DAY + 100, "c")]


def test_idle_time_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    traces = "VERSION 310\n" + "".join(maui_trace(a, a, b, ":".join(nodes)) for a, b, nodes in RUNS)
    ends = "".join(moab_event("JOBEND", b, a, a, b, ",".join(nodes)) for a, b, nodes in RUNS)
    starts = "".join(moab_event("JOBSTART", a, a, a, 0, ",".join(nodes)) for a, _, nodes in RUNS)
    stays = [(node, a, b) for a, b, nodes in RUNS for node in nodes]
    logs = [imported(tmp_path, *texts, window=(DAY, DAY + 100)).log for texts in ([traces], [ends], [starts, ends])]
    for log in logs:
        assert log.idle_node_s == idle_second_by_second(log, stays) == 10 + 40 + 20
        assert log.sha256 == logs[0].sha256


def test_jobs_of_which_only_the_start_or_only_the_end_is_there(tmp_path: Path) -> None:
    text = moab_event("JOBSUBMIT", DAY, 1, 0, 0, "-") + moab_event("JOBSTART", DAY, 1, DAY, 0, "a")
    text += moab_event("JOBSTART", DAY, 2, 0, 0, "b") + moab_event("JOBPREEMPT", DAY + 10, 2, 0, 0, "-")
    text += moab_event("JOBSTART", DAY + 20, 2, DAY + 20, 0, "c") + moab_event(
        "JOBCANCEL", DAY + 30, 2, DAY + 20, 0, "c"
    )
    text += moab_event("JOBCANCEL", DAY + 30, 3, 0, 0, "-", state="Removed")
    found = imported(tmp_path, text)
    assert found.rows.aside == {"other_record": 1, "never_started": 1}
    assert finding(found, "still_running").count == 1
    assert busy_node_s(found.log) == 30 + 10 + 10


def test_nodes_that_go_down(tmp_path: Path) -> None:
    text = moab_event("JOBEND", DAY + 60, 1, DAY, DAY + 60, "a,b") + moab_event(
        "JOBEND", DAY + 100, 2, DAY + 90, DAY + 100, "a"
    )
    text += f"12:00:00 {DAY + 50} node b NODEDOWN nodedown\n12:00:00 {DAY + 80}:17 node b NODEUP back\n"
    found = imported(tmp_path, text, window=(DAY, DAY + 100))
    assert finding(found, "node_down").node_s == 20  # from the end of its job on
    assert found.log.idle_node_s == 30 + 20


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    rows = {
        "never_started": [maui_trace(1, 0, DAY + 9, "[NONE]", state="Removed")],
        "preemptible": [maui_trace(2, DAY, DAY + 9, "a", **{"class": "[soft:1]"})],
        "bad_time": [maui_trace(3, "soon", DAY + 9, "a")],
        "no_nodes": [maui_trace(4, DAY, DAY + 9, "-")],
        "malformed": ["a few words\n", f"12:00:00 {DAY} job 9 JOBEND <job/>\n"],
        "other_record": [f"12:00:00 {DAY} sched Moab SCHEDSTART -\n"],
    }
    text = maui_trace(8, DAY, DAY + 9, "a:a") + "".join(row for group in rows.values() for row in group)
    found = imported(tmp_path, text, preemptible=("soft",))
    assert found.rows.aside == {reason: len(group) for reason, group in rows.items()}
    assert busy_node_s(found.log) == 9


def test_events_of_pairs_tell_the_same(tmp_path: Path) -> None:
    """Moab's language for resource managers writes them with semicolons, texts with blanks in quotes."""
    starts = f"12:00:00 {DAY} job 1 JOBSTART STARTTIME={DAY};TASKLIST=a,a,b,b;TASKS=4;RCLASS=[soft:1]\n"
    ended = f'UNAME=ann COMMENT="a STARTTIME=1" STARTTIME={DAY} COMPLETIONTIME={DAY + 60} TASKLIST=a,b'
    text = f"{starts}12:00:00 {DAY + 61} job 1 JOBEND {ended}\n"
    text += f"12:00:00 {DAY + 9} job 2 JOBCANCEL STATE=Removed RCLASS=[batch:1]\n"
    found = imported(tmp_path, text, window=(DAY, DAY + 100))
    assert found.rows.aside == {"never_started": 1}
    stays = [(node, DAY, DAY + 60) for node in "ab"]
    assert found.log.idle_node_s == idle_second_by_second(found.log, stays) == 2 * 40
    text = starts + moab_event("JOBEND", DAY + 60, 3, DAY, DAY + 60, "c")
    assert imported(tmp_path, text, preemptible=("soft",)).rows.aside == {"preemptible": 1}


def test_tasks_are_cores(tmp_path: Path) -> None:
    """Maui's job of 4 tasks is on two hosts; Moab lists a host once for each of its tasks, here of two processors."""
    text = maui_trace(1, DAY, DAY + 60, "a:b").replace("4 1 [NONE] [NONE] [NONE] proj", "3 1 [NONE] [NONE] [NONE] proj")
    pairs = f"STARTTIME={DAY};TASKLIST=a,a,b;DPROCS=2"
    text += f"12:00:00 {DAY + 50} job 2 JOBEND COMPLETIONTIME={DAY + 50};{pairs}\n"
    found = imported(tmp_path, text, unit="core", node_units=8, window=(DAY, DAY + 100))
    assert found.log.idle_node_s == 16 * 100 - 3 * 60 - 6 * 50
    assert finding(found, "units_divided").count == 1
