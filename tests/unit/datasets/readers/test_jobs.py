"""The idle time of public tables of jobs, held against plain loops over their rows; and tables of any other form."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest

from bftrain import BadInput
from bftrain_datasets.job_tables.public_sets import PUBLIC_SETS, REAL
from bftrain_datasets.log.idle_doubts import doubts_of
from tests.helpers.records import finding, imported

ROWS: Final = Path(__file__).parents[3] / "data" / "public_jobs"
Run = tuple[float, float, "list[str] | int"]  # begin, end, and the names of the nodes or how many


def rows_of(name: str) -> str:
    """Return a few rows of a public set, as published; docs/readers.md says where each is from."""
    return (ROWS / name).read_text()


@dataclass(frozen=True)
class Table:
    """A table, and how the test reads a row of it for itself."""

    name: str
    text: str
    run: Callable[[dict[str, Any]], Run]
    separator: str = ","


def iso(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def zoned(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def interval(text: str) -> list[str]:
    low, _, high = text.partition("-")
    return [str(number) for number in range(int(low), int(high or low) + 1)]


def local_iso(zone: str) -> Callable[[dict[str, Any]], Run]:
    return lambda row: (iso(row["start_time"], zone), iso(row["end_time"], zone), int(row["node_num"]))


TABLES: Final = [
    Table(
        "eagle", rows_of("eagle.csv"), lambda row: (iso(row["start_time"]), iso(row["end_time"]), int(row["nodes_req"]))
    ),
    Table(
        "eagle", rows_of("eagle.json"), lambda row: (row["start_time"] / 1e3, row["end_time"] / 1e3, row["nodes_req"])
    ),
    Table(
        "mira",
        rows_of("mira.csv").removeprefix("#"),
        lambda row: (iso(row["START_TIMESTAMP"]), iso(row["END_TIMESTAMP"]), int(float(row["USED_NODES"]))),
    ),
    Table("helios", rows_of("helios.csv"), local_iso("Asia/Shanghai")),
    Table(
        "acme",
        rows_of("seren.csv"),
        lambda row: (zoned(row["start_time"]), zoned(row["end_time"]), int(row["node_num"])),
    ),
    Table(
        "acme",
        rows_of("kalos.csv"),
        lambda row: (zoned(row["start_time"]), zoned(row["end_time"]), int(row["node_num"])),
    ),
    Table(
        "philly",
        rows_of("philly.json"),
        lambda row: (
            iso(row["start_time"], "America/Los_Angeles"),
            iso(row["end_time"], "America/Los_Angeles"),
            [each["ip"] for each in row["detail"]],
        ),
    ),
    Table("pai", rows_of("pai.csv"), lambda row: (float(row["start_time"]), float(row["end_time"]), [row["machine"]])),
    Table(
        "batsim",
        rows_of("batsim.csv"),
        lambda row: (float(row["starting_time"]), float(row["finish_time"]), interval(row["allocated_resources"])),
    ),
    Table(
        "batsim-processors",
        rows_of("batsim_processors.csv"),
        lambda row: (float(row["starting_time"]), float(row["finish_time"]), interval(row["allocated_processors"])),
    ),
    Table("", rows_of("accre.csv"), lambda row: (iso(row["BEGIN"]), iso(row["END"]), int(row["NODES"]))),
    Table(
        "",
        rows_of("traverse.txt"),
        lambda row: (float(row["Start"]), float(row["End"]), [row["NodeList"]]),
        separator="|",
    ),
]


def runs_of(table: Table) -> list[Run]:
    if table.text.startswith("["):
        records = json.loads(table.text)
        rows = [each for record in records for each in record.get("attempts", [record])]
    else:
        rows = list(csv.DictReader(io.StringIO(table.text), delimiter=table.separator))
    return [table.run(row) for row in rows]


def idle_node_s(runs: Sequence[Run], nodes: int) -> float:
    """Add up what is idle between all moments at which anything changes."""
    moments = sorted({moment for begin, end, _ in runs for moment in (begin, end)})
    total = 0.0
    for since, until in pairwise(moments):
        held = [what for begin, end, what in runs if begin <= since and end >= until]
        names = {name for what in held if isinstance(what, list) for name in what}
        busy = len(names) + sum(what for what in held if isinstance(what, int))
        total += (nodes - busy) * (until - since)
    return total


@pytest.mark.parametrize("table", TABLES, ids=[f"{each.name}-{place}" for place, each in enumerate(TABLES)])
def test_idle_time_of_public_rows_is_that_of_plain_loops(tmp_path: Path, table: Table) -> None:
    runs = runs_of(table)
    begin, end = min(run[0] for run in runs), max(run[1] for run in runs)
    found = imported(tmp_path, table.text, window=(begin, end))
    assert found.format == "jobs"
    assert found.rows.used == len(runs)
    assert found.log.idle_node_s == pytest.approx(idle_node_s(runs, len(found.log.node_names)), rel=1e-12, abs=1e-6)


def test_every_public_set_that_is_said_to_be_tried_on_rows_is() -> None:
    assert {each.name for each in PUBLIC_SETS if each.tried == REAL} <= {table.name for table in TABLES}
    assert sum(bool(table.name) for table in TABLES) >= 10  # tables of the public sets


def test_machine_of_a_public_set_is_as_large_as_it_was(tmp_path: Path) -> None:
    assert len(imported(tmp_path, rows_of("mira.csv")).log.node_names) == 49_152
    assert len(imported(tmp_path, rows_of("mira.csv"), node_count=8192).log.node_names) == 8192


def test_counts_are_said_to_be_counts(tmp_path: Path) -> None:
    found = imported(tmp_path, rows_of("helios.csv"))
    assert finding(found, "which_unknown")
    assert found.log.provenance.options == {"counts": True, "timezone": "Asia/Shanghai"}


PLAIN: Final = "job;began;took;hosts\n1;1600000000;10:00;n[1-2]\n2;1600000300;0:20:00;n3\n"
HELD: Final = 2 * 600 + 1200.0


def busy_node_s(folder: Path, text: str | bytes, **options: Any) -> float:  # noqa: ANN401 - see ImportOptions
    log = imported(folder, text, **options).log
    return (log.end_s - log.start_s) * len(log.node_names) - log.idle_node_s


@pytest.mark.parametrize("separator", [";", ",", "\t", "|", " "])
def test_any_delimiter(tmp_path: Path, separator: str) -> None:
    text = PLAIN.replace(";", separator)
    assert busy_node_s(tmp_path, text, map=("start=began", "elapsed=took")) == HELD


@pytest.mark.parametrize(
    ("cells", "option"),
    [
        (("1600000000", "600"), "elapsed=took"),
        (("1600000000000", "10"), "elapsed=took:min"),
        (("1600000000000000", "600000"), "elapsed=took:ms"),
        (("1600000000000000000", "0:10:00"), "elapsed=took"),
        (("2020-09-13T12:26:40Z", "0-00:10:00"), "elapsed=took"),
        (("2020-09-13 12:26:40 UTC", '"600,0"'), "elapsed=took"),
        (("2020-09-13 12:26:40 UTC", '" 600,000"'), "elapsed=took:ms"),
        (("2020/09/13 12:26:40", "0 days 00:10:00"), "elapsed=took"),
    ],
)
def test_units_of_times_and_spans(tmp_path: Path, cells: tuple[str, str], option: str) -> None:
    text = f"began,took,hosts\n{cells[0]},{cells[1]},n1\n"
    log = imported(tmp_path, text, map=("start=began", option)).log
    assert (log.start_s, log.end_s) == (1_600_000_000.0, 1_600_000_600.0)


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n1 n2", ["n1", "n2"]),
        ("n1;n2", ["n1", "n2"]),
        ("n1+n2", ["n1", "n2"]),
        ("['n1', 'n2']", ["n1", "n2"]),
        ("[12, 13]", ["12", "13"]),
        ("slot1_2@n1,slot2@slot2@n2", ["n1", "n2"]),
        ("0-2 7", ["0", "1", "2", "7"]),
    ],
)
def test_nodes_as_tables_write_them(tmp_path: Path, nodes: str, names: list[str]) -> None:
    text = f"start\tend\thosts\n1600000000\t1600000600\t{nodes}\n"
    assert list(imported(tmp_path, text).log.node_names) == names


PACKINGS: Final[dict[str, Callable[[bytes], bytes]]] = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}


@pytest.mark.parametrize("pack", PACKINGS.values(), ids=PACKINGS)
def test_packed_tables(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    assert busy_node_s(tmp_path, pack(PLAIN.encode()), map=("start=began", "elapsed=took")) == HELD


def test_zstd(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    packed = pa.Codec("zstd").compress(PLAIN.encode(), asbytes=True)
    assert busy_node_s(tmp_path, packed, map=("start=began", "elapsed=took")) == HELD


def test_parquet_with_times_lists_and_unused_columns(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    start = datetime(2020, 5, 4, 12, tzinfo=ZoneInfo("UTC"))
    table = pa.table(
        {
            "job_id": [1, 2],
            "start_time": pa.array([start, start], pa.timestamp("us", "UTC")),
            "end_time": pa.array([start + timedelta(hours=1), start + timedelta(hours=2)], pa.timestamp("us", "UTC")),
            "nodes": [[12, 13], [14]],
            "num_nodes_alloc": [2, 1],
            "num_gpus_alloc": [8, 4],
            "job_state": ["COMPLETED", "TIMEOUT"],
            "node_power_consumption": [[1.0] * 50, [2.0]],
        }
    )
    for options in ({}, {"compression": "zstd"}):
        out = io.BytesIO()
        parquet.write_table(table, out, **options)
        found = imported(tmp_path, out.getvalue())
        assert found.log.node_names == ("12", "13", "14")
        assert found.log.idle_node_s == 2 * 3600
    assert busy_node_s(tmp_path, gzip.compress(out.getvalue())) == 4 * 3600


def test_json_lines_and_sacct_json(tmp_path: Path) -> None:
    lines = '{"start": 1600000000, "end": 1600000600, "hosts": ["n1", "n2"]}\nnonsense\n'
    found = imported(tmp_path, lines)
    assert (found.rows.used, found.rows.aside) == (1, {"malformed": 1})
    job = {
        "job_id": 7,
        "state": {"current": ["COMPLETED"]},
        "nodes": "n[1-2]",
        "allocation_nodes": 2,
        "time": {"start": 1600000000, "end": 1600000600, "elapsed": 600, "limit": {"set": False, "number": 0}},
        "steps": [{"nodes": {"count": 2}, "time": {"start": {"set": True, "infinite": False, "number": 1}}}],
    }
    waiting = {**job, "job_id": 8, "state": {"current": ["PENDING"]}, "nodes": "None assigned"}
    found = imported(tmp_path, json.dumps({"meta": {"plugins": {}}, "jobs": [job, waiting], "errors": []}))
    assert (found.rows.used, found.rows.aside) == (1, {"never_started": 1})
    assert found.log.node_names == ("n1", "n2")


def test_idle_time_after_a_node_failure_is_doubtful_in_tables(tmp_path: Path) -> None:
    rows = (("NODE_FAIL", "n1", 0, 600), ("COMPLETED", "n1", 1800, 2400), ("RUNNING", "n2", 0, 2400))
    day = 1_600_000_000
    table = "job,state,start,end,hosts\n" + "".join(
        f"{number},{state},{day + start},{day + end},{node}\n" for number, (state, node, start, end) in enumerate(rows)
    )
    jobs = [
        {
            "job_id": number,
            "state": {"current": [state]},
            "nodes": node,
            "allocation_nodes": 1,
            "time": {"start": day + start, "end": day + end, "elapsed": end - start},
        }
        for number, (state, node, start, end) in enumerate(rows)
    ]
    for text, from_sacct in ((table, False), (json.dumps({"meta": {}, "jobs": jobs, "errors": []}), True)):
        found = imported(tmp_path, text)
        assert doubts_of(found.log).causes == {"node_failed": pytest.approx(1200 / 3600)}
        assert ("no_node_states" in {each.name for each in found.findings}) == from_sacct


def test_sacct_json_tells_what_was_allocated(tmp_path: Path) -> None:
    """GPUs stand there in all and by type, or by type alone; cores without a name."""
    cpu = {"type": "cpu", "name": "", "id": 1, "count": 8}
    both = [{"type": "gres", "name": name, "id": 1001, "count": 3} for name in ("gpu", "gpu:a100")]
    typed = [{"type": "gres", "name": f"gpu:{name}", "id": 1002, "count": 1} for name in ("a100", "h100")]
    jobs = [
        {
            "job_id": number,
            "state": {"current": ["COMPLETED"]},
            "nodes": f"n{number}",
            "allocation_nodes": 1,
            "time": {"start": 1600000000, "end": 1600000600, "elapsed": 600},
            "tres": {"allocated": [cpu, *gres]},
        }
        for number, gres in ((1, both), (2, typed))
    ]
    text = json.dumps({"jobs": jobs})
    log = imported(tmp_path, text, unit="gpu", node_units=4).log
    assert (len(log.node_names), log.idle_node_s) == (8, 600.0 * (1 + 2))
    log = imported(tmp_path, text, unit="core", node_units=10).log
    assert (len(log.node_names), log.idle_node_s) == (20, 600.0 * (2 + 2))


def test_jobs_of_two_clusters_are_not_merged(tmp_path: Path) -> None:
    text = "cluster,start,end,hosts\na,1600000000,1600000600,n1\nb,1600000000,1600001200,n1\n"
    with pytest.raises(BadInput, match=r"jobs of 2 clusters.*a, b .select one: --map cluster=cluster:b"):
        imported(tmp_path, text)
    assert busy_node_s(tmp_path, text, map=("cluster=cluster:b",)) == 1200
    assert busy_node_s(tmp_path, text, cluster="a") == 600
    assert imported(tmp_path, text, cluster="a").rows.aside == {"other_cluster": 1}
    assert {busy_node_s(tmp_path, text, cluster=word) for word in ("all", "*")} == {1200}
    with pytest.raises(BadInput, match="no row is of the cluster 'c'"):
        imported(tmp_path, text, cluster="c")


def test_cores_tell_the_nodes_if_it_is_said_how_many_one_has(tmp_path: Path) -> None:
    text = "start,end,ncpus\n1600000000,1600000600,33\n"
    found = imported(tmp_path, text, map=("cores=ncpus:16",))
    assert len(found.log.node_names) == 3
    assert finding(found, "procs_as_nodes")


def test_rows_are_judged_as_those_of_any_format(tmp_path: Path) -> None:
    rows = [
        "1,1600000000,1600000600,n1,COMPLETED",
        "2,1600000000,1600000600,,COMPLETED",
        "3,1600000600,1600000000,n1,COMPLETED",
        "4,1600000000,1600000000,n1,COMPLETED",
        "5,Unknown,Unknown,,PENDING",
        "6,1600000100,,n2,RUNNING",
        "7,1600000100,,n2,FAILED",
        "8,yesterday,1600000600,n1,COMPLETED",
        "9,1600000000,1600000600,n[,COMPLETED",
        "10.batch,1600000000,1600000600,n1,COMPLETED",
        "11,1600000000,1600000600",
    ]
    table = "ID,start,end,hosts,state\n" + "\n".join(rows) + "\n"
    dump = "JobID|Start|End|NodeList|State\n" + "\n".join(rows).replace(",", "|") + "\n"
    ours, theirs = imported(tmp_path, table), imported(tmp_path, dump)
    assert (ours.format, theirs.format) == ("jobs", "sacct")
    assert ours.rows == theirs.rows
    assert ours.log == theirs.log or ours.log.sha256 == theirs.log.sha256
    counted = [
        [(each.name, each.count, each.node_s) for each in found.findings if each.name != "no_node_states"]
        for found in (ours, theirs)
    ]
    assert counted[0] == counted[1]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("JobID|Elapsed|NodeList\n1|00:01:00|n1\n", r"JobID = job.*missing: the start of a job \(start\).*--map"),
        ("JobID|Start|End|User\n", r"sacct: "),
        ("job_id,start_time,gpus\n1,2,3\n", r"missing: its end \(end\), or run time .* and its nodes"),
        ("JobId=1 JobName=a\n   UserId=b JobState=RUNNING\n   StartTime=2026-01-01T00:00:00\n", "scontrol"),
        ('[{"start_time": 1, "machine": "a"}]', r"start_time = start.*missing: its end"),
    ],
)
def test_a_near_miss_says_what_is_missing(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(BadInput) as error:
        imported(tmp_path, text)
    if what != "sacct: ":
        assert re.search(what, str(error.value))


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ({"map": ("start=bgan",)}, "no column 'bgan' .did you mean 'began'"),
        ({"map": ("strt=began",)}, "'strt=began' is not a meaning of a column"),
        ({"map": ("start=began:weeks",)}, "unknown unit .start may be in iso, s, ms, us, ns"),
        ({"map": ("cores=job:many",)}, "has no number for a unit"),
        ({"preset": "pm10"}, "unknown public set 'pm10' .did you mean 'pm100'"),
        ({"preset": "pm100"}, "no column 'job_id'"),
    ],
)
def test_wrong_options_say_what_would_be_right(tmp_path: Path, option: dict[str, Any], what: str) -> None:
    with pytest.raises(BadInput, match=what):
        imported(tmp_path, PLAIN, **option)


def test_columns_suffice_for_a_table_without_a_header(tmp_path: Path) -> None:
    rows = "1,1600000000,1600000600,n1\n2,1600000000,1600001200,n2\n"
    found = imported(tmp_path, rows, columns=("job", "start", "end", "hosts"))
    assert (found.format, found.rows.used) == ("jobs", 2)
    found = imported(tmp_path, rows, columns=("JobID", "Start", "End", "NodeList"))
    assert (found.format, found.rows.used) == ("sacct", 2)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 5000, '[{"start": 1, "end": 2, "nodes": "a"}', "[1, 2"])
def test_json_without_end_or_bottom_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput):
        imported(tmp_path, text, format="jobs")


def test_times_of_slurm_that_may_be_missing(tmp_path: Path) -> None:
    """So scontrol show jobs --json writes them."""
    start, end = ({"set": True, "infinite": False, "number": at} for at in (1_600_000_000, 1_600_000_600))
    job = {"job_id": 7, "job_state": ["COMPLETED"], "nodes": "n[1-2]", "start_time": start, "end_time": end}
    assert busy_node_s(tmp_path, json.dumps({"jobs": [job]})) == 2 * 600


@pytest.mark.parametrize("form", ["blanks", "json"])
def test_columns_of_slurm_in_forms_that_sacct_does_not_print(tmp_path: Path, form: str) -> None:
    rows = [("JobID", "Start", "End", "NodeList"), ("1", "1600000000", "1600000600", "n[1-2]")]
    text = "".join(f"{a:<9} {b:<12} {c:<12} {d}\n" for a, b, c, d in rows)
    assert busy_node_s(tmp_path, text if form == "blanks" else json.dumps([dict(zip(*rows, strict=True))])) == 1200
