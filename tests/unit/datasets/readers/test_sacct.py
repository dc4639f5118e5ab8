"""Slurm's accounting as sacct prints it, in all the ways that people ask it to."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bftrain import BadInput, ImportOptions
from bftrain_datasets.importing.findings import option_for
from bftrain_datasets.importing.pipeline import import_files
from bftrain_datasets.log.idle_doubts import doubts_of
from bftrain_datasets.readers import sacct
from bftrain_datasets.readers.sacct import XDMOD_COLUMNS
from tests.helpers.records import busy_node_s, finding, imported, kinds
from tests.helpers.site_data import site_data

DAY = 1_700_000_000
COLUMNS = ("JobID", "JobName", "Partition", "Submit", "Start", "End", "NNodes", "NodeList", "State")


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(DAY + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def cells(number: object, start: object, end: object, nodes: str, **other: str) -> dict[str, str]:
    """Return one job by column; numbers are seconds after DAY."""
    times = {"Start": start, "End": end, "Submit": 0}
    written = {name: iso(value) if isinstance(value, (int, float)) else str(value) for name, value in times.items()}
    usual = {"JobID": str(number), "JobName": "job", "Partition": "main", "NNodes": "1", "State": "COMPLETED"}
    return usual | written | {"NodeList": nodes} | other


def dump(*jobs: dict[str, str], columns: tuple[str, ...] = COLUMNS, separator: str = "|", end: str = "") -> str:
    rows = [list(columns), *([job[column] for column in columns] for job in jobs)]
    return "".join(separator.join(row) + end + "\n" for row in rows)


TWO = (cells(1, 0, 100, "nid[0001-0002]", NNodes="2"), cells(2, 150, 200, "nid0001"))
BUSY_S = 250
USUAL = {"local_times", "nodes_inferred", "censored_end", "no_node_states"}


@pytest.mark.parametrize(
    "text",
    [
        dump(*TWO),
        dump(*TWO, end="|"),  # sacct --parsable
        dump(*TWO, columns=tuple(reversed(COLUMNS))),
        dump(*TWO, columns=("JobID", "Start", "End", "NodeList")),
        dump(*TWO, separator="\t"),
        dump(*TWO, separator=";"),
        dump(*TWO, separator=","),
        dump(*TWO).replace("NodeList", "NodeList%200").replace("JobID", "JobID%-30"),
        dump(*TWO).replace("Start", "start_time").replace("NodeList", "node_list").replace("End", "end_time"),
        dump(*TWO).upper().replace("COMPLETED", "completed"),
        dump(*TWO).replace("\n", "\r\n"),
        dump(*TWO).replace("|", " | "),
        "| "
        + dump(*TWO, separator=" | ", end=" |").rstrip().replace("\n", "\n|---|:--|\n| ", 1).replace("\n2 ", "\n| 2 "),
        "\ufeff" + dump(*TWO),
        "Some news of the day\n" + dump(*TWO),
        dump(TWO[0]) + dump(TWO[1]),
        dump(*TWO) + "\n\n",
        dump(*TWO).rstrip("\n"),
    ],
)
def test_two_jobs_in_many_forms(tmp_path: Path, text: str) -> None:
    found = imported(tmp_path, text)
    assert found.format == "sacct"
    assert busy_node_s(found.log) == BUSY_S
    assert [name.lower() for name in found.log.node_names] == ["nid0001", "nid0002"]
    assert (found.log.start_s, found.log.end_s) == (DAY, DAY + 200)
    assert found.rows.aside == ({"malformed": 1} if text.startswith("Some") else {})
    assert ("unended_line" in kinds(found)) == (not text.endswith("\n"))  # it may be cut off
    assert set(kinds(found)) - {"malformed", "unended_line"} == USUAL


def test_quoted_cells(tmp_path: Path) -> None:
    text = dump(TWO[1], separator=",")
    listed = dump(cells(1, 0, 100, '"nid[0001,0002]"', NNodes="2", JobName='"a ""name"", with all"'), separator=",")
    found = imported(tmp_path, listed + text)
    assert busy_node_s(found.log) == BUSY_S
    assert found.rows.aside == {}


@pytest.mark.parametrize("line", ['1,"' + "x" * 200_000 + '",3', '1,"a",b\rc', '1,"'])
def test_quotes_that_no_table_can_have(tmp_path: Path, line: str) -> None:
    found = imported(tmp_path, dump(*TWO, separator=",") + line + "\n")
    assert found.rows.aside == {"malformed": 1}


def test_epochs_of_slurm_time_format(tmp_path: Path) -> None:
    jobs = [job | {name: str(DAY + at) for name, at in (("Start", 0), ("End", 100))} for job in TWO[:1]]
    found = imported(tmp_path, dump(*jobs))
    assert busy_node_s(found.log) == 200
    assert "local_times" not in kinds(found)


def test_times_of_a_zone(tmp_path: Path) -> None:
    found = imported(tmp_path, dump(*TWO), timezone="America/New_York")
    assert found.log.start_s == DAY + 5 * 3600
    assert "local_times" not in kinds(found)


def xdmod(*jobs: dict[str, str], end: str = "") -> str:
    """Write what Open XDMoD asks for: no header, 26 columns."""
    rows = []
    for job in jobs:
        row = {name.lower(): value for name, value in job.items()}
        rows.append("|".join(row.get(column, column) for column in XDMOD_COLUMNS) + end)
    return "\n".join(rows) + "\n"


def test_the_dump_of_open_xdmod_has_no_header(tmp_path: Path) -> None:
    for text in (xdmod(*TWO), xdmod(*TWO, end="|"), xdmod(*(job | {"JobName": "a|b|c"} for job in TWO))):
        found = imported(tmp_path, text)
        assert busy_node_s(found.log) == BUSY_S
        assert ("delimiter_in_text" in kinds(found)) == ("a|b|c" in text)


def test_columns_can_be_named(tmp_path: Path) -> None:
    text = dump(*TWO).split("\n", 1)[1]
    found = imported(tmp_path, text, format="sacct", columns=COLUMNS)
    assert busy_node_s(found.log) == BUSY_S
    tabs = imported(tmp_path, text.replace("|", "\t"), format="sacct", columns=COLUMNS)
    assert busy_node_s(tabs.log) == BUSY_S
    with pytest.raises(BadInput, match=r"--columns: not enough columns: JobID .list JobID, Start, End"):
        imported(tmp_path, text, format="sacct", columns=("JobID",))
    with pytest.raises(BadInput, match=r"no header, and unknown columns .*--columns"):
        imported(tmp_path, text, format="sacct")


def test_what_sacct_prints_by_itself_cuts_names_off(tmp_path: Path) -> None:
    text = (
        "       JobID               Start                 End        NodeList \n"
        "------------ ------------------- ------------------- --------------- \n"
        f"1            {iso(0)} {iso(10)}    nid[0001-00+ \n"
    )
    with pytest.raises(BadInput, match=r"0: columns cut to a width .use sacct with --parsable2"):
        imported(tmp_path, text)


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (cells(3, "Unknown", "Unknown", "None assigned", State="PENDING"), "never_started"),
        (cells(3, iso(10), "Unknown", "None assigned", State="PENDING"), "never_started"),  # as it is planned
        (cells(3, "None", 10, "None assigned", State="CANCELLED by 0"), "never_started"),
        (cells(3, "1970-01-01T00:00:00", 10, "None assigned", State="CANCELLED"), "never_started"),
        (cells(3, "0", 10, "None assigned", State="CANCELLED"), "never_started"),
        (cells(3, "Unknown", "Unknown", "", State="REQUEUE_HOLD"), "never_started"),
        (cells(3, 10, 10, "nid0001", State="CANCELLED by 1001"), "zero_length"),
        (cells(3, 10, 20, "None assigned", State="CANCELLED by 0"), "no_nodes"),
        (cells(3, 10, 20, "", State="COMPLETED"), "no_nodes"),
        (cells(3, 20, 10, "nid0001"), "backwards"),
        (cells(3, 20, "Unknown", "nid0001"), "no_end"),
        (cells(3, "yesterday", 10, "nid0001"), "bad_time"),
        (cells(3, 10, str(2**70), "nid0001"), "bad_time"),
        (cells(3, 10, "1e400", "nid0001"), "bad_time"),
        (cells(3, 10, "-1", "nid0001"), "bad_time"),
        (cells(3, 10, 20, "nid[0001-"), "bad_nodes"),
        (cells(3, 10, 20, "nid[1-9999999999]"), "bad_nodes"),
        (cells("3.batch", 10, 20, "nid0001"), "step"),
        (cells("3.extern", 10, 20, "nid0001"), "step"),
        (cells("3.0", 10, 20, "nid0001"), "step"),
        (cells("123_[4-9]", "Unknown", "Unknown", "None assigned", State="PENDING"), "never_started"),
    ],
)
def test_rows_that_hold_no_node_and_why(tmp_path: Path, job: dict[str, str], reason: str) -> None:
    found = imported(tmp_path, dump(*TWO, job))
    assert found.rows.aside == {reason: 1}
    assert finding(found, reason).first == "0:4"
    assert busy_node_s(found.log) == BUSY_S


@pytest.mark.parametrize(
    ("job", "more_s"),
    [
        (cells("123_4", 100, 120, "nid0001"), 20),
        (cells("123+1", 100, 120, "nid0001"), 20),
        (cells(3, 100, 120, "nid0001", State="CANCELLED by 0"), 20),
        (cells(3, 100, 120, "nid0001", State="NODE_FAIL"), 20),
        (cells(3, 100, 120, "nid0001", State="REQUEUED"), 20),  # it held its node before that
        (cells(3, 100, 120, "nid0001", State="RESIZING"), 20),  # and goes on in a row of its own
        (cells(3, 100, 120, "nid0001", JobName="restart of Start|End"), 20),
        (cells(3, 160, "Unknown", "nid0002", State="RUNNING"), 40),
        (cells(3, 160, "Unknown", "nid0002", State="SUSPENDED"), 40),
        (cells(3, 160, "Unknown", "nid0002", State="COMPLETING"), 40),
        (cells(3, 160, "Unknown", "nid0002", State="CONFIGURING"), 40),  # it waits for a node that it has
        (cells(3, 160, "Unknown", "nid0002", State="RESIZING"), 40),
        (cells(3, 160, 200, "nid0002", State="RUNNING"), 40),  # as sacct --truncate has it
    ],
)
def test_rows_that_hold_a_node(tmp_path: Path, job: dict[str, str], more_s: int) -> None:
    found = imported(tmp_path, dump(*TWO, job))
    assert found.rows.aside == {}
    assert busy_node_s(found.log) == BUSY_S + more_s


@pytest.mark.parametrize(
    ("starts", "cut", "cut_off_s"),
    [
        ((300, 0), 5, 200),  # out of order: jobs of any time may be missing, so all idle time left is doubtful
        ((0, 300), 5, None),  # in order of time: those that are missing are the latest
        ((300, 0), 1, None),  # only the end of the last line is missing
    ],
)
def test_no_idle_time_of_a_dump_that_is_cut_off_is_sure_unless_it_is_in_order(
    tmp_path: Path, starts: tuple[int, int], cut: int, cut_off_s: int | None
) -> None:
    rows = [cells(number, start, start + 100, "n[1-4]", NNodes="4") for number, start in enumerate(starts)]
    text = dump(*rows, cells(3, 400, 500, "n[1-4]"), columns=(*COLUMNS[:-2], "State", "NodeList"))
    if cut > 1:
        text = text[: text.rindex("|COMPLETED")]  # a cell is missing
    found = imported(tmp_path, text[:-1] if cut == 1 else text)
    assert ("truncated" in kinds(found)) == (cut > 1)
    causes = doubts_of(found.log).causes
    assert causes.get("cut_off") == (None if cut_off_s is None else pytest.approx(cut_off_s * 3 / 3600))


def test_a_truncated_running_job_says_how_far_the_records_reach(tmp_path: Path) -> None:
    found = imported(tmp_path, dump(*TWO, cells(3, 160, 400, "nid0002", State="RUNNING")))
    assert found.log.end_s == DAY + 400
    assert finding(found, "still_running").count == 1


def test_a_job_that_was_requeued_has_a_row_for_each_time(tmp_path: Path) -> None:
    """With --duplicates sacct prints them all; a row that is there twice is another matter."""
    again = (cells(3, 100, 110, "nid0001", State="NODE_FAIL"), cells(3, 120, 130, "nid0002"))
    found = imported(tmp_path, dump(*TWO, *again, again[1]))
    assert found.rows.aside == {"duplicate": 1}
    assert busy_node_s(found.log) == BUSY_S + 20


def test_preempted_jobs_count_as_busy_unless_their_partition_is_named(tmp_path: Path) -> None:
    pilot = cells(3, 100, 120, "nid0001", State="PREEMPTED", Partition="pilot")
    found = imported(tmp_path, dump(*TWO, pilot))
    assert finding(found, "preempted_jobs").node_s == 20
    assert busy_node_s(found.log) == BUSY_S + 20
    found = imported(tmp_path, dump(*TWO, pilot), preemptible=("scavenge", "pilot"))
    assert finding(found, "preemptible").node_s == 20
    assert busy_node_s(found.log) == BUSY_S
    assert "preempted_jobs" not in kinds(found)


@pytest.mark.parametrize(
    "line", ["1|2", "|".join("x" * 20), "\x00", "x", "1|job|main" + "|" * 4, "-" * 20 + "|" + "-" * 20, "|"]
)
def test_rows_of_another_width_are_counted(tmp_path: Path, line: str) -> None:
    columns = tuple(column for column in COLUMNS if column != "JobName")
    found = imported(tmp_path, dump(*TWO, columns=columns) + line + "\n")
    assert found.rows.aside == {"malformed": 1}


def test_separators_in_a_name_are_distinguished_from_too_many_columns(tmp_path: Path) -> None:
    found = imported(tmp_path, dump(*TWO, cells(3, 100, 120, "nid0001", JobName="a|b||c|")))
    assert busy_node_s(found.log) == BUSY_S + 20
    assert finding(found, "delimiter_in_text").first == "0:4"
    both = ("JobID", "JobName", "Start", "End", "NodeList", "Comment")
    two_texts = dump(*(job | {"Comment": "a|b"} for job in TWO), columns=both)
    with pytest.raises(BadInput, match="2 malformed"):  # which of the two texts it stands in cannot be known
        imported(tmp_path, two_texts)


def test_columns_that_change_in_the_middle(tmp_path: Path) -> None:
    found = imported(tmp_path, dump(TWO[0]) + dump(TWO[1], columns=("End", "NodeList", "Start", "JobID")))
    assert busy_node_s(found.log) == BUSY_S


def test_counts_of_a_dump_without_names(tmp_path: Path) -> None:
    text = dump(*(job | {"NodeList": ""} for job in TWO))
    with pytest.raises(BadInput, match=r"no job lists its nodes.*--counts"):
        imported(tmp_path, text)
    found = imported(tmp_path, text, counts=True)
    assert busy_node_s(found.log) == BUSY_S
    huge = cells(3, 100, 120, "", NNodes=str(2**70))
    assert imported(tmp_path, dump(*TWO, huge), counts=True).rows.aside == {"bad_count": 1}


def test_counts_of_records_that_name_nodes_are_a_doubt(tmp_path: Path) -> None:
    """Two jobs on one node look like two nodes."""
    text = dump(cells(1, 0, 100, "n1"), cells(2, 10, 100, "n1"), cells(3, 20, 100, ""))
    found = imported(tmp_path, text, counts=True)
    assert len(found.log.node_names) == 3
    assert finding(found, "names_unused").count == 2
    assert "names_unused" not in kinds(imported(tmp_path, text))


@pytest.mark.parametrize(
    ("head", "ours"),
    [
        (dump(*TWO), True),
        (dump(*TWO)[:60], True),
        (dump(*TWO)[:20], False),
        (xdmod(*TWO), True),
        ("JobID|User|State\n1|a|COMPLETED\n", False),
        ("time,node,state\n0,a,idle\n", False),
        ("\xff\xfe\x00", False),
        ("", False),
    ],
)
def test_recognition(head: str, ours: bool) -> None:  # noqa: FBT001 - what is expected
    assert sacct.recognises(head.encode("latin-1")) is ours


def test_many_rows(tmp_path: Path) -> None:
    chance = random.Random(7)  # noqa: S311 - a test wants the same numbers each time
    rows = ["JobID|Partition|Start|End|NNodes|NodeList|State"]
    for number in range(30_000):
        first, size, start = chance.randrange(900), chance.randint(1, 20), DAY + 30 * number
        nodes = f"nid[{first:04d}-{first + size:04d}]"
        rows.append(f"{number}|main|{start}|{start + chance.randint(1, 9000)}|{size + 1}|{nodes}|COMPLETED")
    found = imported(tmp_path, "\n".join(rows))
    assert found.rows.used == 30_000


def test_a_run_of_a_real_slurm() -> None:
    found = import_files([site_data("sacct/ub-micro-slurm_acct.out")], ImportOptions())
    assert busy_node_s(found.log) == 405_162
    assert len(found.log.node_names) == 10


def test_the_number_of_nodes_is_held_against_their_names(tmp_path: Path) -> None:
    odd = (
        cells(1, 0, 100, "0-127", NNodes="128"),
        cells(2, 0, 50, "n1", NNodes="128"),
        cells(3, 0, 9, "4,6-7", NNodes="3"),
    )
    found = imported(tmp_path, dump(*odd))
    assert len(found.log.node_names) == 128
    assert busy_node_s(found.log) == 128 * 100
    assert finding(found, "nodes_differ").node_s == 128 * 50
    assert finding(found, "number_ranges").count == 2


def test_a_number_that_was_asked_for_is_not_held_against_names(tmp_path: Path) -> None:
    text = f"JobID|Start|End|ReqNodes|NodeList\n1|{DAY}|{DAY + 9}|4|n1\n"
    assert imported(tmp_path, text).rows.used == 1


@pytest.mark.parametrize("elapsed", ["ElapsedRaw", "Elapsed"])
def test_the_night_when_the_clock_goes_back_is_exact_by_the_length(tmp_path: Path, elapsed: str) -> None:
    zone = ZoneInfo("Europe/Berlin")
    night = int(datetime(2025, 10, 25, 22, 0, tzinfo=UTC).timestamp())
    spans = [(night + 600 * at, night + 600 * at + 3000 + at) for at in range(24)]
    rows = "".join(
        "|".join(
            (
                str(at),
                *(datetime.fromtimestamp(edge, zone).strftime("%Y-%m-%dT%H:%M:%S") for edge in span),
                str(span[1] - span[0]) if elapsed == "ElapsedRaw" else f"{timedelta(seconds=span[1] - span[0])}",
                f"n{at:02d}\n",
            )
        )
        for at, span in enumerate(spans)
    )
    found = imported(tmp_path, f"JobID|Start|End|{elapsed}|NodeList\n{rows}", timezone="Europe/Berlin", keep_end=True)
    assert found.rows.aside == {}
    assert busy_node_s(found.log) == sum(end - start for start, end in spans)
    assert finding(found, "length_known").count == 15
    assert finding(found, "twice_times").count == 2 * 2  # start and end within one of the two hours that look alike


def test_the_night_when_the_clock_goes_forward_is_exact_by_the_length(tmp_path: Path) -> None:
    text = "JobID|Start|End|ElapsedRaw|NodeList\n1|2026-03-29T01:30:00|2026-03-29T02:10:00|2400|n1\n"
    found = imported(tmp_path, text, timezone="Europe/Berlin")
    assert found.log.span_s == 2400
    assert "twice_times" not in kinds(found)


def test_an_end_without_a_start_is_not_a_job_that_never_started(tmp_path: Path) -> None:
    jobs = (*TWO, cells(3, "Unknown", 90, "nid0001"), cells(4, "Unknown", 90, "None assigned", State="CANCELLED"))
    assert imported(tmp_path, dump(*jobs)).rows.aside == {"no_start": 1, "never_started": 1}


@pytest.mark.parametrize("state", ["SPECIAL_EXIT", "REQUEUE_HOLD", "COMPLETING"])
def test_a_job_with_both_times_has_ended(tmp_path: Path, state: str) -> None:
    found = imported(tmp_path, dump(*TWO, cells(3, 0, 20, "nid0003", State=state)))
    assert busy_node_s(found.log) == BUSY_S + 20


@pytest.mark.parametrize("end", ["", "|"])
@pytest.mark.parametrize("last", ["COMPLETED", ""])
def test_separators_in_a_name_with_and_without_one_at_the_end(tmp_path: Path, end: str, last: str) -> None:
    columns = ("JobID", "JobName", "Start", "End", "NodeList", "State")
    jobs = (cells(1, 0, 100, "nid[1-2]", JobName="a|b"), cells(2, 150, 200, "nid1", JobName="x|y|", State=last))
    found = imported(tmp_path, dump(*jobs, columns=columns, end=end))
    assert busy_node_s(found.log) == BUSY_S
    assert finding(found, "delimiter_in_text").count == 2


def test_clusters_are_kept_apart(tmp_path: Path) -> None:
    columns = ("JobID", "Cluster", "Start", "End", "NodeList")
    text = dump(*(cells(1, 0, end, "n1", Cluster=name) for name, end in (("east", 50), ("west", 90))), columns=columns)
    with pytest.raises(BadInput, match=r"2 clusters: east, west.*--cluster all or --cluster '\*' reads all"):
        imported(tmp_path, text)
    found = imported(tmp_path, text, cluster="west")
    assert busy_node_s(found.log) == 90
    assert found.rows.aside == {"other_cluster": 1}
    with pytest.raises(BadInput, match="did you mean 'west'"):
        imported(tmp_path, text, cluster="wst")
    assert len({busy_node_s(imported(tmp_path, text, cluster=word).log) for word in ("all", "*")}) == 1
    with pytest.raises(BadInput, match="one of the clusters is called 'all'"):
        imported(tmp_path, text.replace("west", "all"), cluster="all")


def test_node_sets_with_commas_between_columns_with_commas(tmp_path: Path) -> None:
    rows = (cells(1, 0, 100, "n[1,3-4]-[1,2]", NNodes="6"), cells(2, 0, 100, "n[7"), cells(3, 0, 100, "n8"))
    found = imported(tmp_path, dump(*rows, separator=","))
    assert found.rows.aside == {"bad_nodes": 1}
    assert (busy_node_s(found.log), finding(found, "delimiter_in_text").count) == (700, 1)


def test_rows_that_cannot_be_read_may_have_run_at_any_time(tmp_path: Path) -> None:
    rows = [cells(1, 0, 100, "n[1-4]", NNodes="4"), cells(2, 300, 400, "n[1-4]", NNodes="4")]
    found = imported(tmp_path, dump(*rows) + "cut|\n")  # a job of the mean size: one node over the 400 s
    assert doubts_of(found.log).causes["rows_aside"] == 200 / 3600  # of which 200 s were idle


FAILED = (
    cells(1, 0, 100, "nid[0001-0002]", NNodes="2", State="NODE_FAIL"),
    cells(2, 0, 3000, "nid0003"),
    cells(3, 400, 3000, "nid0001"),
    cells(4, 1000, 3000, "nid0002", State="RUNNING", End="Unknown"),
)


def events(*rows: str) -> str:
    return "".join(f"{row}\n" for row in ("NodeName|TimeStart|TimeEnd|State", *rows))


def test_idle_time_after_a_node_failure_is_doubtful(tmp_path: Path) -> None:
    found = imported(tmp_path, dump(*FAILED))
    doubts = doubts_of(found.log)
    assert doubts.causes == {"node_failed": pytest.approx((300 + 900) / 3600)}
    assert doubts.sure_node_h == pytest.approx(0.0)
    assert finding(found, "node_failed").node_s == 1200
    other = imported(tmp_path, dump(*(job | {"State": "FAILED"} for job in FAILED[:1]), *FAILED[1:]))
    assert other.log.sha256 == found.log.sha256
    assert doubts_of(other.log).causes == {}


def test_a_node_with_another_job_has_not_failed(tmp_path: Path) -> None:
    shares = cells(5, 50, 200, "nid0002")
    assert doubts_of(imported(tmp_path, dump(*FAILED, shares)).log).causes == {"node_failed": pytest.approx(300 / 3600)}


def test_node_events_show_how_long_a_failed_node_was_down(tmp_path: Path) -> None:
    found = imported(tmp_path, dump(*FAILED), events(f"nid[0001-0002]|{iso(110)}|{iso(300)}|DOWN*"))
    assert finding(found, "node_down").node_s == 2 * 190
    assert doubts_of(found.log).causes == {"node_failed": pytest.approx(2 * 10 / 3600)}  # until the event begins


def test_a_failed_node_without_later_jobs_counts_once(tmp_path: Path) -> None:
    found = imported(tmp_path, dump(*FAILED[:3], cells(4, 2900, 3000, "nid0003")))
    assert doubts_of(found.log).causes == {
        "censored_end": pytest.approx(2900 / 3600),
        "node_failed": pytest.approx(300 / 3600),
    }


def test_all_gpus_of_a_failed_node_are_doubtful(tmp_path: Path) -> None:
    columns = (*COLUMNS, "AllocTRES")
    jobs = (
        cells(1, 0, 100, "n1", AllocTRES="gres/gpu=2", State="NODE_FAIL"),
        cells(2, 300, 400, "n1", AllocTRES="gres/gpu=1"),
        cells(3, 0, 1000, "n2", AllocTRES="gres/gpu=4"),
        cells(4, 0, 50, "n1", AllocTRES="gres/gpu=1"),
    )
    found = imported(tmp_path, dump(*jobs, columns=columns), unit="gpu", node_units=4, window=(None, DAY + 1000))
    assert doubts_of(found.log).causes == {
        "node_failed": pytest.approx(3 * 200 / 3600),
        "always_idle": pytest.approx(1000 / 3600),
    }


def test_missing_node_events_are_noted_once(tmp_path: Path) -> None:
    note = finding(imported(tmp_path, dump(TWO[0]), dump(TWO[1])), "no_node_states")
    assert note.count == 1
    assert "sacctmgr show event -P" in option_for(note.name)
    for files in ((dump(*TWO), events()), (events(), dump(*TWO))):
        assert "no_node_states" not in kinds(imported(tmp_path, *files))
