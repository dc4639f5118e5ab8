"""Imports as a whole: order of files, provenance, plug-in readers, limits, random jobs and real records."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyarrow import parquet

from bftrain import (
    BadInput,
    BadValue,
    BftrainError,
    BrokenPlugin,
    ImportOptions,
    UnknownName,
    import_logs,
    load_log,
    save_log,
)
from tests.helpers.in_process import CommandLine
from tests.helpers.records import busy_node_s, finding, imported, kinds
from tests.helpers.samples import PICKLES, SAMPLES
from tests.helpers.site_data import site_data
from tests.helpers.slot_loops import Stay, idle_slot_s
from tests.unit.core import plugins

DAY = 1_700_000_000
HEADER = "JobID|Start|End|NodeList|State|Partition\n"
ROWS = Path(__file__).parents[2] / "data" / "public_jobs"  # as published; docs/reference/readers.md names the sources


def job(number: int, start: int, end: int, nodes: str) -> str:
    return f"{number}|{DAY + start}|{DAY + end}|{nodes}|COMPLETED|main\n"


MONDAY = HEADER + job(1, 0, 100, "n1") + job(2, 20, 90, "n[2-3]")
TUESDAY = HEADER + job(3, 120, 300, "n3") + job(2, 20, 90, "n[2-3]") + job(4, 130, 250, "n10")
WEDNESDAY = HEADER + job(5, 290, 400, "n[1-2]") + job(6, 350, 350, "n1")


def test_the_order_of_files_does_not_matter(tmp_path: Path) -> None:
    made = [imported(tmp_path, *texts) for texts in itertools.permutations((MONDAY, TUESDAY, WEDNESDAY))]
    assert len({each.log.sha256 for each in made}) == 1
    for each in made:
        assert each.log.node_names == ("n1", "n2", "n3", "n10")
        assert (each.rows.read, each.rows.used) == (7, 5)
        assert each.rows.aside == {"repeated": 1, "no_usage": 1}  # both days list job 2
        assert kinds(each) == kinds(made[0])
    assert [finding(each, "notation").count for each in made] == [1, 2, 2, 2, 2, 3]  # rows out of order


def test_a_log_has_its_provenance(tmp_path: Path) -> None:
    made = imported(tmp_path, MONDAY, TUESDAY, min_gap_s=5.0, preemptible=("scavenge",))
    story = made.log.provenance
    assert story.made_by == "reader sacct"
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in (MONDAY, TUESDAY)]
    assert [(source.name, source.sha256) for source in story.sources] == list(zip("01", digests, strict=True))
    assert story.options == {"min_gap_s": 5.0, "preemptible": ["scavenge"]}
    assert story.findings == made.findings
    assert str(tmp_path) not in repr(story)


@pytest.mark.parametrize("name", ["log.npz", "log.csv"])
def test_checks_of_a_saved_log_report_the_same_findings(tmp_path: Path, bftrain: CommandLine, name: str) -> None:
    made = imported(tmp_path, MONDAY, TUESDAY, min_gap_s=50.0, down=((DAY + 50, DAY + 60),))
    save_log(made.log, tmp_path / name)
    checked = json.loads(bftrain("import", "--dry-run", tmp_path / name, "--json").out)
    counts = {each.name: each.count for each in made.findings}
    assert {each["name"]: each["count"] for each in checked["findings"]} == counts


def test_a_part_of_a_log_is_checked_as_it_is(tmp_path: Path, bftrain: CommandLine) -> None:
    made = imported(tmp_path, HEADER + job(1, 0, 100, "n1") + job(2, 9000, 9100, "n[1-2]"))
    assert "suspected_downtime" in kinds(made)
    save_log(made.log.select(window=(DAY, DAY + 100)), tmp_path / "part.npz")
    checked = json.loads(bftrain("import", "--dry-run", tmp_path / "part.npz", "--json").out)
    names = {each["name"] for each in checked["findings"]}
    assert "suspected_downtime" not in names
    assert "always_idle" in names


def test_files_are_named_once() -> None:
    with pytest.raises(BadInput, match="stdin: named more than once"):
        import_logs("-", "-")
    with pytest.raises(BadInput, match="no file to read"):
        import_logs()


class Stranger:
    """A reader that another package brings: one job a line, `START END NODES`."""

    name = "stranger"
    about = "a scheduler of our own"

    def recognises(self, head: bytes) -> bool:
        return head.startswith(b"#stranger")

    def read(self, file: Any, intake: Any) -> None:  # noqa: ANN401 - see the protocol of readers
        for number, line in file.lines():
            if not line.startswith("#"):
                intake.row(number)
                if line != "forget":
                    start, end, nodes = line.split()
                    intake.job(line, float(start), float(end), nodes)
                if line.endswith("twice"):
                    intake.use()


class Rude(Stranger):
    """A reader that raises as soon as it is asked."""

    name = "rude"

    def recognises(self, head: bytes) -> bool:
        raise ZeroDivisionError(head)


stranger, rude = Stranger(), Rude()
PLUGIN = ("reader", "stranger", f"{__name__}:stranger")


def test_readers_of_other_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = [("reader", "absent", "no_such_module:x"), ("reader", "rude", f"{__name__}:rude")]
    plugins.register(monkeypatch, *broken, PLUGIN)
    made = imported(tmp_path, f"#stranger\n{DAY} {DAY + 5} n[1-2]\n")
    assert (made.format, made.log.node_names) == ("stranger", ("n1", "n2"))
    with pytest.raises(BrokenPlugin, match="no_such_module"):
        imported(tmp_path, "#stranger\n", format="absent")
    with pytest.raises(BrokenPlugin, match=r"'stranger', .*/0: raised ValueError"):
        imported(tmp_path, "#stranger\n5 6\n")


@pytest.mark.parametrize("line", ["forget", f"{DAY} {DAY + 5} twice"])
def test_a_reader_that_miscounts_its_rows_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str) -> None:
    plugins.register(monkeypatch, PLUGIN)
    with pytest.raises(BftrainError, match="0:2"):
        imported(tmp_path, f"#stranger\n{line}\n{DAY} {DAY + 5} n1\n")


def test_a_format_can_be_named(tmp_path: Path) -> None:
    assert imported(tmp_path, MONDAY, format="sacct").format == "sacct"
    with pytest.raises(UnknownName, match="did you mean 'sacct'"):
        imported(tmp_path, MONDAY, format="sact")
    with pytest.raises(BadInput, match="/1: this file has the format swf"):
        imported(tmp_path, MONDAY, f"; UnixStartTime: 0\n1 {DAY} 0 10 1{' -1' * 13} {{a}}\n")


NO_RECORDS = [
    *(b"hello\n", b"a,b,c\n1,2,3\n", b"time,value\n1,2\n", b"\0" * 100, b"2026-01-05 00:00:00 INFO all is well\n"),
    *(path.read_bytes() for path in sorted(PICKLES.glob("*-bounds.pkl"))),
]


@pytest.mark.parametrize("content", NO_RECORDS)
def test_other_files_are_rejected(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(BadInput, match="/0"):
        imported(tmp_path, content)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_start_of_a_file_is_never_taken_for_another_format(tmp_path: Path, name: str) -> None:
    samples = SAMPLES[name]
    for sample in samples if isinstance(samples, (list, tuple)) else [samples]:
        content = sample.encode() if isinstance(sample, str) else sample
        for cut in range(0, len(content), max(1, len(content) // 8)):
            try:
                assert imported(tmp_path, content[:cut]).format == name
            except BftrainError as error:
                assert "0" in str(error)  # noqa: PT017 - any cut may be too short


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"nodes": ("a", "a")}, "nodes"),
        ({"nodes": ("",)}, "nodes"),
        ({"node_count": 0}, "node_count"),
        ({"min_gap_s": -1.0}, "min_gap_s"),
        ({"min_gap_s": float("nan")}, "min_gap_s"),
        ({"downtime_after_s": 0.0}, "downtime_after_s"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], word: str) -> None:
    with pytest.raises(BadValue, match=word):
        ImportOptions(**options)


def test_a_machine_has_a_million_nodes_at_most(tmp_path: Path) -> None:
    names = "".join(job(rack, 0, 100, f"r{rack}n[1-65536]") for rack in range(16))
    with pytest.raises(BadInput, match="1,000,000 different nodes"):
        imported(tmp_path, HEADER + names)


def test_numbers_of_thousands_of_digits_are_impossible_values(tmp_path: Path) -> None:
    rows = "".join(f"{job}|{DAY}|{DAY + 9}|n{job}|{cpus}\n" for job, cpus in enumerate((4, "9" * 5000)))
    (tmp_path / "jobs").write_text(f"JobID|Start|End|NodeList|AllocCPUS\n{rows}")
    assert import_logs(tmp_path / "jobs", options=ImportOptions(unit="core")).rows.aside == {"bad_value": 1}


def test_idle_gpus_and_cores_of_random_jobs_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    chance = random.Random(5)  # noqa: S311 - the same jobs every time
    rows, gpus, cores = ["JobID|Start|End|NNodes|NodeList|State|AllocTRES|NCPUS"], list[Stay](), list[Stay]()
    for number in range(300):
        start = DAY + 60 * chance.randrange(500)
        end = start + 60 * chance.randrange(1, 90)
        first, count, each = chance.randrange(1, 9), chance.choice((1, 1, 1, 2)), chance.choice((0, 1, 2, 4))
        names = [f"g{node}" for node in range(first, first + count)]
        typed = chance.choice(("gres/gpu={0},", "gres/gpu:a100={0},gres/gpu={0},", "gres/gpu:v100={0},"))
        tres = f"billing=9,cpu={8 * count}," + (typed.format(each * count) if each else "") + f"mem=9G,node={count}"
        nodes = f"g[{first}-{first + count - 1}]" if count > 1 else f"g{first}"
        rows.append(f"{number}|{start}|{end}|{count}|{nodes}|COMPLETED|{tres}|{8 * count}")
        gpus.append((start, end, dict.fromkeys(names, each)))
        cores.append((start, end, dict.fromkeys(names, 8)))
    text = "\n".join(rows)
    window = (float(DAY), DAY + 60.0 * 600)
    names = tuple(f"g{number}" for number in range(1, 10))
    found = imported(tmp_path, text, unit="gpu", node_units=4, nodes=names, window=window)
    assert found.log.idle_node_s == idle_slot_s(gpus, dict.fromkeys(names, 4), *window)
    assert found.rows.aside == {"no_usage": sum(not any(stay[2].values()) for stay in gpus)}
    found = imported(tmp_path, text.replace("cpu=", "xcpu="), unit="core", node_units=32, nodes=names, window=window)
    assert found.log.idle_node_s == idle_slot_s(cores, dict.fromkeys(names, 32), *window)


def philly_records(jobs: int) -> list[dict[str, Any]]:
    """Draw jobs in the shape of Philly's cluster_job_log: attempts on machines of two or eight GPUs, by name."""
    chance = random.Random(3)  # noqa: S311 - the same jobs every time
    base, records = datetime(2017, 10, 9, tzinfo=UTC), []
    for number in range(jobs):
        start = base + timedelta(seconds=chance.randrange(200_000))
        end = start + timedelta(seconds=chance.randrange(60, 9_000))
        detail = [
            {
                "ip": f"m{each}",
                "gpus": [f"gpu{slot}" for slot in chance.sample(range(2 if each % 3 else 8), chance.choice((1, 2)))],
            }
            for each in chance.sample(range(1, 13), chance.choice((1, 1, 1, 2)))
        ]  # fmt: skip
        tried = {"start_time": f"{start:%Y-%m-%d %H:%M:%S}", "end_time": f"{end:%Y-%m-%d %H:%M:%S}", "detail": detail}
        attempt = tried if number % 9 else {"start_time": None, "end_time": None, "detail": []}
        records.append(
            {"status": "Pass", "vc": "a", "jobid": f"j{number}", "attempts": [attempt],
             "submitted_time": f"{base:%Y-%m-%d %H:%M:%S}", "user": "u"}
        )  # fmt: skip
    return records


@pytest.mark.parametrize("drawn", [False, True])
def test_idle_gpus_of_philly_are_those_of_a_plain_loop(tmp_path: Path, *, drawn: bool) -> None:
    records = philly_records(200) if drawn else json.loads((ROWS / "philly.json").read_text())

    def moment(text: str) -> float:
        return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("America/Los_Angeles")).timestamp()

    stays: list[Stay] = [
        (
            moment(attempt["start_time"]),
            moment(attempt["end_time"]),
            {each["ip"]: {int(gpu.removeprefix("gpu")) for gpu in each["gpus"]} for each in attempt["detail"]},
        )
        for record in records
        for attempt in record["attempts"]
        if attempt["start_time"]
    ]
    window = min(stay[0] for stay in stays), max(stay[1] for stay in stays)
    found = imported(tmp_path, json.dumps(records), unit="gpu", window=window)
    there = {node: 0 for _, _, held in stays for node in held}
    for name in found.log.node_names:
        there[name.partition("/")[0]] += 1
    assert found.log.idle_node_s == pytest.approx(idle_slot_s(stays, there, *window), rel=1e-12)
    found = imported(tmp_path, json.dumps(records), unit="gpu", window=window, node_units=8)
    assert found.log.idle_node_s == pytest.approx(idle_slot_s(stays, dict.fromkeys(there, 8), *window), rel=1e-12)


def random_swf(*, odd: bool) -> str:
    """Write random jobs; odd rows among them make a reader look at each row of a block alone."""
    rng = random.Random(1)  # noqa: S311 - the same jobs every time
    rows = [f"; UnixStartTime: {DAY}\n; MaxNodes: 20\n; MaxProcs: 80\n"]
    for number in range(300):
        if odd and not number % 20:
            rows.append(f"{number} 1e99 0 5 1{' -1' * 13}\n")
        wait, run, procs = rng.choice((-1, 0, 5)), rng.randrange(1, 50), rng.choice((-1, 0, *range(1, 40)))
        status, queue = rng.choice((0, 1, 5)), rng.choice((-1, 2))
        head = f"{number} {number} {wait} {run} {procs} -1 -1 {rng.choice((-1, 0, 3, 9))}"
        rows.append(f"{head} -1 -1 {status} -1 -1 -1 {queue} -1 -1 -1\n")
    return "".join(rows)


@pytest.mark.parametrize("sharing", ["none", "cores"])
def test_odd_rows_change_nothing_about_the_others(tmp_path: Path, sharing: str) -> None:
    options: dict[str, Any] = {"counts": True, "sharing": sharing, "preemptible": ("2",)}
    plain, odd = (imported(tmp_path, random_swf(odd=odd), **options) for odd in (False, True))
    assert odd.log.sha256 == plain.log.sha256
    assert odd.rows.aside == plain.rows.aside | {"bad_time": 15}


def test_real_records_of_several_sites() -> None:
    found = import_logs(site_data("sacct/ub-micro-slurm_acct.out"))
    assert (busy_node_s(found.log), len(found.log.node_names)) == (405_162, 10)
    counts = import_logs(site_data("gpu/philly_node_sequence.csv.gz"))
    assert (counts.rows.used, finding(counts, "local_times").count) == (105_644, 105_644)
    assert counts.log.idle_share == pytest.approx(0.200, abs=0.001)
    kinds_of_oar = [site_data(f"pernode/oar-g5k-graphene-seed8.{kind}.json.gz") for kind in ("details", "gantt")]
    logs = [import_logs(*paths).log for paths in (kinds_of_oar[:1], kinds_of_oar[1:], kinds_of_oar)]
    assert len({log.sha256 for log in logs}) == 1
    assert (len(logs[0].node_names), busy_node_s(logs[0])) == (32, 271_204)


def test_wagap_has_44_nodes_that_are_idle_for_21_per_cent() -> None:
    path = site_data("pernode/wagap-2013.swf.gz")
    whole = import_logs(path, options=ImportOptions(keep_end=True))
    assert len(whole.log.node_names) == 44
    assert whole.log.idle_share == pytest.approx(0.21, abs=0.005)
    cut = import_logs(path)
    assert finding(cut, "log_trimmed").node_s == pytest.approx(4_730 * 3600, rel=1e-3)
    assert cut.log.idle_share == pytest.approx(0.18, abs=0.005)


@pytest.mark.parametrize(("name", "nodes"), [("KTH-SP2-1996-2", 100), ("NASA-iPSC-1993-3.1-cln", 128)])
def test_logs_of_the_archive_as_counts(name: str, nodes: int) -> None:
    found = import_logs(site_data(f"swf/{name}.swf.gz"), options=ImportOptions(counts=True))
    assert len(found.log.node_names) == nodes
    assert found.rows.aside.keys() == {"no_usage"}


UNUSUAL = (
    "{job}|batch|2020-10-25T02:30:00|2020-10-25T04:00:00|1|n[1-2]|COMPLETED|DUBLIN|5400",
    "{job}|batch|2020-10-20T02:30:00|Unknown|1|n1|RUNNING|DUBLIN|",
    "{job}.batch|batch|2020-10-20T02:30:00|2020-10-20T03:30:00|1|n1|COMPLETED|DUBLIN|",
    "{job}|debug|2020-10-20T02:30:00.5|2020-10-20T03:30:00Z|1|n1|PREEMPTED|DUBLIN|",
    "{job}|batch|2020-10-20T02:30:00|never|1|n1|COMPLETED|DUBLIN|",
    "{job}|batch|2020-10-20T02:30:00|2020-10-20T03:30:00|3|n[1|2,4]|COMPLETED|DUBLIN|",
    "{job}|batch|Unknown|Unknown|1|None assigned|CANCELLED by 7|DUBLIN|",
    "{job}|batch|2020-10-20T02:30:00|2020-10-20T03:30:00|2|n1|NODE_FAIL|DUBLIN|",
    "{job}|batch|2020-10-20T02:30:00|2020-10-20T02:30:00|1|n1|COMPLETED|CORK|",
    "   ",
)


@pytest.mark.parametrize("unusual", [UNUSUAL, UNUSUAL[:4], UNUSUAL[4:]])
def test_usual_lines_are_read_in_columns_as_one_by_one(tmp_path: Path, unusual: tuple[str, ...]) -> None:
    header = "JobID|Partition|Start|End|NNodes|NodeList|State|Cluster|ElapsedRaw"
    lines = []
    for job in range(3_000):
        first, size = job * 7 % 40, 1 + job % 3
        state = ("COMPLETED", "TIMEOUT", "CANCELLED by 1")[job % 3]
        hours = (job // 60, job // 60 + 2)
        start, end = (f"2020-10-{20 + hour // 24}T{hour % 24:02d}:{job % 60:02d}:07" for hour in hours)
        lines.append(f"{job}|batch|{start}|{end}|{size}|n[{first}-{first + size - 1}]|{state}|DUBLIN|7200")
    for place, line in enumerate(unusual):
        lines.insert(100 + 250 * place, line.format(job=9_000 + place))
    options = ImportOptions(timezone="Europe/Dublin", cluster="DUBLIN")
    results = []
    for name, every in (("columns", len(lines) + 1), ("lines", 20)):  # blocks with another header are read line by line
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" if at % every else f"{header}\n{line}\n" for at, line in enumerate(lines)))
        imported = import_logs(path, options=options)
        found = {each.name: (each.count, each.node_s) for each in imported.findings}
        results.append((imported.log.sha256, imported.rows, found, imported.log.provenance.doubtful))
    assert results[0] == results[1]
    assert results[0][1].read == len(lines) - ("   " in unusual)


def test_parquet_texts_without_their_annotation_are_read(tmp_path: Path) -> None:
    times = {"start_time": [b"1600000000", b"1600000100"], "end_time": [b"1600003600", b"1600003700"]}
    texts = {**times, "nodes": [b"n1", b"n2"]}
    columns = {name: pa.array(cells, pa.binary()) for name, cells in texts.items()}
    parquet.write_table(pa.table({"job_id": [1, 2], **columns}), tmp_path / "jobs.parquet")
    found = import_logs(tmp_path / "jobs.parquet")
    assert (found.rows.used, found.log.node_names) == (2, ("n1", "n2"))


def test_records_are_read_without_pandas(tmp_path: Path) -> None:
    """Arrow imports pandas for most conversions, which takes longer than reading a file."""
    swf = "".join(f"{number} {60 * number} 5 90 4 -1 -1 4 -1 -1 1 7 -1 -1 2 -1 -1 -1\n" for number in range(1, 50))
    table = "job,start,end,nodes,user\n1,1700000000,1700000100,n1,ada\n2,2023-11-14T22:13:20,1700000300,n2,\n"
    for name, text in (("jobs.swf", swf), ("sacct.txt", MONDAY), ("table.csv", table)):
        (tmp_path / name).write_text(text)
    columns = {"job_id": ["1"], "start_time": [DAY], "end_time": [DAY + 60], "nodes": ["n[1-4]"]}
    parquet.write_table(pa.table(columns), tmp_path / "jobs.parquet")
    program = (
        "import sys; from bftrain import import_logs, ImportOptions\n"
        "options = ImportOptions(counts=True), None, None, None\n"
        "used = [import_logs(path, options=each).rows.used for path, each in zip(sys.argv[1:], options)]\n"
        "print(used, 'pandas' in sys.modules)"
    )
    paths = [str(tmp_path / name) for name in ("jobs.swf", "sacct.txt", "table.csv", "jobs.parquet")]
    done = subprocess.run([sys.executable, "-c", program, *paths], capture_output=True, text=True, check=True)
    assert done.stdout == "[49, 2, 2, 1] False\n"


def test_states_before_each_change_of_counted_nodes_are_those_of_the_saved_log(tmp_path: Path) -> None:
    totals = [1 + 5 * minute % 8 for minute in range(300)]
    rows = [f"{DAY + 60 * minute},{7 * minute % (total + 1)},{total}" for minute, total in enumerate(totals)]
    path = tmp_path / "counts.csv"
    path.write_text("\n".join(("time,active,total", *rows)) + "\n")
    log = import_logs(path).log
    save_log(log, tmp_path / "log.npz")
    assert log.before.tolist() == load_log(tmp_path / "log.npz").before.tolist()
    assert set(log.before.tolist()) == {0, 1, 2}
