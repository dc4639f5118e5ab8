"""The Standard Workload Format, with hosts and without."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bftrain import BadInput
from bftrain_datasets.importing.findings import option_for
from bftrain_datasets.log.idle_doubts import doubts_of
from bftrain_datasets.log.measures import summarise
from bftrain_datasets.readers import swf
from tests.helpers.records import busy_node_s, finding, imported, kinds
from tests.helpers.samples import DAY
from tests.helpers.samples import swf_job as row
from tests.helpers.site_data import site_data

HEADER = f"; Version: 2.2\n; UnixStartTime: {DAY}\n; MaxNodes: 4\n; MaxProcs: 4\n;\n"


def test_hosts_of_each_processor_are_the_nodes(tmp_path: Path) -> None:
    text = HEADER + row(1, 0, 10, 100, hosts="{5,5,5,7}") + row(2, 20, 0, 40, hosts="{6} short 1:ppn=1")
    found = imported(tmp_path, text)
    assert found.format == "swf"
    assert found.log.node_names == ("5", "6", "7")
    assert (found.log.start_s, found.log.end_s) == (DAY + 10, DAY + 110)
    assert busy_node_s(found.log) == 2 * 100 + 40
    assert "repeated_hosts" not in kinds(found)


@pytest.mark.parametrize("hosts", ["{n[1-2]}", "{n1,n2}", "n[1-2]", "n1,n2", "{n2,n1,n1}"])
def test_other_spellings_of_hosts(tmp_path: Path, hosts: str) -> None:
    assert imported(tmp_path, row(1, DAY, 0, 9, hosts=hosts)).log.node_names == ("n1", "n2")


def test_times_count_from_the_header_or_from_1970(tmp_path: Path) -> None:
    for header, submit in ((HEADER, 5), (HEADER, DAY + 5), ("; UnixStartTime: 0\n", DAY + 5), ("", DAY + 5)):
        log = imported(tmp_path, header + row(1, submit, 2, 9, hosts="{a}")).log
        assert (log.start_s, log.end_s) == (DAY + 7, DAY + 16)
    assert "relative_times" in kinds(imported(tmp_path, row(1, 5, 2, 9, hosts="{a}")))


def test_tabs_and_fractions(tmp_path: Path) -> None:
    text = HEADER + row(1, "5.5", "2.0", "9.25", "2.0", hosts="{a}").replace(" ", "\t") + "\n  \n"
    found = imported(tmp_path, text + row(2, 30, 0, 9, hosts="{a.b}"))
    assert found.log.start_s == DAY + 7.5
    assert finding(found, "odd_layout").count == 1


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    rows = {
        "never_started": [
            row(1, 0, -1, -1, -1, status=5),
            row(2, 0, 5, 0, status=5),
            row(3, 0, -1, -1, 0),
            row(4, 0, 5, -1, status=0),
        ],
        "zero_length": [row(5, 0, 5, 0, status=0)],
        "no_end": [row(6, 0, 5, -1, status=1)],
        "backwards": [row(7, 9, 5, -1e9)],
        "step": [row(15, 0, 5, 9, status=status) for status in (2, 3, 4)],
        "bad_time": [row(9, "1e400", 5, 9), row(9, 0, "nan", 9), row(9, 0, 5, 2**70)],
        "no_nodes": [row(10, 0, 5, 9), row(11, 0, 5, 9, hosts="-1"), row(11, 0, 5, 9, hosts="{}")],
        "bad_nodes": [row(12, 0, 5, 9, hosts="{a[1-}")],
        "preemptible": [row(13, 0, 5, 9, queue=3, hosts="{a}"), row(14, 0, 5, 9, hosts="{a} soft x")],
        "malformed": ["1 2 3\n", "a " * 18 + "\n"],
    }
    text = HEADER + "".join(line for lines in rows.values() for line in lines) + row(15, 0, 1, 9, hosts="{a}")
    found = imported(tmp_path, text, preemptible=("3", "soft"))
    assert found.rows.aside == {reason: len(lines) for reason, lines in rows.items()}
    assert found.rows.used == 1


def test_a_cancelled_job_that_ran_held_its_nodes(tmp_path: Path) -> None:
    found = imported(tmp_path, HEADER + row(1, 0, 0, 9, status=5, hosts="{a}"))
    assert busy_node_s(found.log) == 9


def test_without_a_wait_a_job_starts_when_it_is_submitted(tmp_path: Path) -> None:
    found = imported(tmp_path, HEADER + row(1, 10, -1, 9, hosts="{a}"))
    assert found.log.start_s == DAY + 10
    assert finding(found, "no_wait").count == 1


def test_without_hosts_the_error_says_what_can_be_done(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="bftrain schedule 0 -o DIR") as error:
        imported(tmp_path, HEADER + row(1, 0, 0, 9))
    assert "--counts" in str(error.value)


def test_counts_take_processors_for_nodes(tmp_path: Path) -> None:
    text = HEADER + row(1, 0, 0, 10, 3) + row(2, 5, 0, 5, -1, asked=1)
    found = imported(tmp_path, text, counts=True)
    assert len(found.log.node_names) == 4
    assert busy_node_s(found.log) == 3 * 10 + 5
    assert finding(found, "requested_size").count == 1
    assert "procs_as_nodes" not in kinds(found)


def test_counts_on_nodes_with_several_processors_round_up(tmp_path: Path) -> None:
    header = HEADER.replace("MaxProcs: 4", "MaxProcs: 64")  # 16 processors a node
    found = imported(tmp_path, header + row(1, 0, 0, 10, 17) + row(2, 10, 0, 10, 16), counts=True)
    assert busy_node_s(found.log) == 2 * 10 + 10
    assert finding(found, "procs_as_nodes").count == 2


def test_counts_of_absurd_sizes_are_set_aside(tmp_path: Path) -> None:
    text = HEADER + row(1, 0, 0, 9, "inf") + row(2, 0, 0, 9, "1e300") + row(3, 0, 0, 9, "nan") + row(4, 0, 0, 9, 1)
    assert imported(tmp_path, text, counts=True).rows.aside == {"bad_count": 3}


def test_counts_use_hosts_where_they_are_named(tmp_path: Path) -> None:
    found = imported(tmp_path, HEADER + row(1, 0, 0, 10, 4, hosts="{a,a,b,b}"), counts=True)
    assert busy_node_s(found.log) == 2 * 10


def test_headers_may_be_odd(tmp_path: Path) -> None:
    header = "; MaxNodes: -3\n;MaxProcs:8\n; UnixStartTime: soon\n; Note: none\n;;;\n; MaxJobs\n"
    found = imported(tmp_path, header + row(1, DAY, 0, 10), counts=True)
    assert len(found.log.node_names) == 8


def test_recognition() -> None:
    assert swf.recognises((HEADER + row(1, 0, 0, 9)).encode())
    assert swf.recognises(b"junk\n" + row(1, 0, 0, 9).encode())
    assert swf.recognises(HEADER.encode())
    assert not swf.recognises(b"; a comment\n1 2 3\n")
    assert not swf.recognises(b"")


def test_wagap_has_44_nodes_that_are_idle_for_21_per_cent(tmp_path: Path) -> None:
    rows = site_data("pernode/wagap-2013.swf.gz").read_bytes()
    whole = imported(tmp_path, rows, keep_end=True)
    assert len(whole.log.node_names) == 44
    assert whole.log.idle_share == pytest.approx(0.21, abs=0.005)
    cut = imported(tmp_path, rows)
    assert finding(cut, "cut_end").node_s == pytest.approx(4_730 * 3600, rel=1e-3)
    assert cut.log.idle_share == pytest.approx(0.18, abs=0.005)


@pytest.mark.parametrize(("name", "nodes"), [("KTH-SP2-1996-2", 100), ("NASA-iPSC-1993-3.1-cln", 128)])
def test_logs_of_the_archive_as_counts(tmp_path: Path, name: str, nodes: int) -> None:
    found = imported(tmp_path, site_data(f"swf/{name}.swf.gz").read_bytes(), counts=True)
    assert summarise(found.log).nodes == nodes
    assert found.rows.aside.keys() == {"zero_length"}


def test_counts_of_shared_nodes_go_by_cores(tmp_path: Path) -> None:
    jobs = [(0, 100, 3), (10, 50, 5), (20, 20, 6), (60, 40, 9)]  # submission, run time, processors; 4 nodes of 4
    text = HEADER.replace("MaxProcs: 4", "MaxProcs: 16")
    text += "".join(row(at, submit, 0, run, procs) for at, (submit, run, procs) in enumerate(jobs))
    rounded = imported(tmp_path, text, counts=True)
    assert "--sharing cores" in option_for("over_capacity")
    assert finding(rounded, "over_capacity").node_s > 0
    found = imported(tmp_path, text, counts=True, sharing="cores")
    used = [sum(procs for begin, run, procs in jobs if begin <= second < begin + run) for second in range(100)]
    assert busy_node_s(found.log) == sum(-(-cores // 4) for cores in used)
    assert not {"over_capacity", "procs_as_nodes"} & kinds(found)


def test_parts_of_a_job_count_where_no_line_is_of_the_job(tmp_path: Path) -> None:
    text = HEADER + row(1, 0, 0, 9, status=2, hosts="{a}") + row(2, 20, 0, -1, status=2, hosts="{a}")
    text += row(3, 0, 0, 9, status=3, hosts="{b}") + row(3, 0, 0, 50, hosts="{b}")
    found = imported(tmp_path, text)
    assert found.rows.aside == {"never_started": 1, "step": 1}
    assert busy_node_s(found.log) == 9 + 50


def test_jobs_that_do_not_fill_their_nodes_are_doubtful(tmp_path: Path) -> None:
    header = f"; UnixStartTime: {DAY}\n; MaxNodes: 10\n; MaxProcs: 40\n"
    jobs = [(0, 30, 6), (10, 50, 8), (20, 20, 1), (60, 40, 9)]  # start, run, processors
    text = header + "".join(row(number, begin, 0, run, procs) for number, (begin, run, procs) in enumerate(jobs))
    found = imported(tmp_path, text, counts=True, window=(DAY, DAY + 100))
    doubtful = 0
    for second in range(100):
        runs = [procs for begin, run, procs in jobs if begin <= second < begin + run]
        held = sum(-(-procs // 4) for procs in runs)
        further = sum(procs - -(-procs // 4) for procs in runs if procs % 4)
        doubtful += min(further, 5 - held)  # the others of the ten never run a job, which is a doubt of its own
    assert doubts_of(found.log).causes["procs_as_nodes"] == pytest.approx(doubtful / 3600)
    assert "procs_as_nodes" not in doubts_of(imported(tmp_path, text, counts=True, sharing="cores").log).causes


def test_jobs_with_a_time_that_cannot_be_read_are_doubtful(tmp_path: Path) -> None:
    text = HEADER + row(1, 0, 0, 100, hosts="{a}") + row(2, 0, 0, 10, hosts="{b}") + row(3, 0, 0, 10, hosts="{c}")
    text += row(4, 40, 0, "inf", hosts="{b,b,c}") + row(5, "nan", 0, 9, hosts="{c}") + row(6, 70, "nan", 9, hosts="{c}")
    found = imported(tmp_path, text, window=(DAY, DAY + 100))
    assert found.rows.aside == {"bad_time": 3}
    idle = [sum(second >= 10 for _ in "bc") for second in range(100)]
    may_run = [1 + 1 + 2 * (second >= 40) for second in range(100)]
    doubtful = sum(min(pair) for pair in zip(idle, may_run, strict=True))
    assert doubts_of(found.log).causes["rows_aside"] == pytest.approx(doubtful / 3600)


def odd_rows(seed: int) -> str:
    """Write jobs of all kinds; of odd seeds some have a field that makes them be read one by one."""
    rng = random.Random(seed)  # noqa: S311 - the same jobs every time
    odd: list[dict[str, object]] = [{"run": 9.5}, {"wait": "1-2"}, {"submit": "1e99"}, {"procs": 10**9}, {"status": 3}]
    text = f"; UnixStartTime: {DAY}\n; MaxNodes: 20\n; MaxProcs: 80\n"
    for job in range(300):
        fields: dict[str, object] = {
            "submit": rng.choice((job, DAY + job)),
            "wait": rng.choice((-1, 0, 5)),
            "run": rng.choice((0, -1, -7, *rng.sample(range(1, 50), 3))),
            "procs": rng.choice((-1, 0, *rng.sample(range(1, 40), 3))),
            "asked": rng.choice((-1, 0, 3, 9)),
            "status": rng.choice((0, 1, 5)),
            "queue": rng.choice((-1, 2)),
        }
        if seed % 2 and rng.random() < 0.02:
            fields |= rng.choice(odd)
        text += row(rng.randint(1, 290), **fields)
    return text


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sharing", ["none", "cores"])
def test_rows_read_by_columns_count_as_each_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, sharing: str
) -> None:
    monkeypatch.setattr(swf, "_AT_ONCE", 40)
    text = odd_rows(seed)
    by_columns = imported(tmp_path, text, counts=True, sharing=sharing, preemptible=("2",))
    with monkeypatch.context() as one_by_one:
        one_by_one.setattr(swf, "_plain_block", lambda _: None)
        expected = imported(tmp_path, text, counts=True, sharing=sharing, preemptible=("2",))
    assert by_columns.rows == expected.rows
    assert by_columns.findings == expected.findings
    assert by_columns.log == expected.log
