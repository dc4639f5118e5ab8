"""Partitions: each node counts for the one whose jobs held it longest, and logs keep that in all their forms."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from ClusterShell.NodeSet import NodeSet

from bftrain import BadValue, EventLog, import_logs, load_log, save_log
from bftrain_datasets.importing.anonymise import anonymised
from bftrain_datasets.log.provenance import LogProvenance
from tests.helpers.site_data import site_data

HEADER = "JobID|Partition|Submit|Start|End|NNodes|NodeList|AllocTRES|State"


def _dump(folder: Path, jobs: Iterable[tuple[str, int, int, str]]) -> Path:
    """Write an sacct dump of jobs: partition, begin and end in hours of a day, node set."""
    rows = [HEADER]
    for number, (partition, begin, end, nodes) in enumerate(jobs, 1):
        times = "|".join(f"2026-01-0{1 + hour // 24}T{hour % 24:02}:00:00" for hour in (begin, begin, end))
        size = len(NodeSet(nodes))
        rows.append(f"{number}|{partition}|{times}|{size}|{nodes}|cpu=4,gres/gpu={2 * size},node={size}|COMPLETED")
    path = folder / "sacct.txt"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


MOST_PARTITIONS = 100
JOBS = [
    ("", 0, 1, "n5"),  # the first end, from which on a log is whole
    ("regular", 0, 4, "n[1-4]"),
    ("debug", 5, 6, "n[1-2]"),  # shorter than regular on both
    ("debug", 4, 9, "n4"),  # longer than regular
    ("", 1, 20, "n5"),
    ("gpu,large", 2, 20, "g[01-02]"),
    ("regular", 21, 23, "n[1-2]"),
]
PARTITIONS = {"debug": "n4", "gpu,large": "g[01-02]", "regular": "n[1-3]"}


def _groups(log: EventLog) -> dict[str, str]:
    """Return the partition of each node, "" for a node without one."""
    of_node = dict.fromkeys(log.node_names, "")
    for partition, nodes in log.provenance.partitions.items():
        of_node |= {node: partition for node in NodeSet(nodes) if node in of_node}
    return of_node


def test_a_node_counts_for_the_partition_whose_jobs_held_it_longest(tmp_path: Path) -> None:
    log = import_logs(_dump(tmp_path, JOBS)).log
    assert dict(log.provenance.partitions) == PARTITIONS
    assert _groups(log) == {
        **dict.fromkeys(("g01", "g02"), "gpu,large"),
        **dict.fromkeys(("n1", "n2", "n3"), "regular"),
        "n4": "debug",
        "n5": "",
    }


@pytest.mark.parametrize("form", ["npz", "csv", "parquet"])
def test_logs_keep_them_and_parts_of_logs_too(form: str, tmp_path: Path) -> None:
    log = import_logs(_dump(tmp_path, JOBS)).log
    save_log(log, tmp_path / f"log.{form}")
    loaded = load_log(tmp_path / f"log.{form}")
    assert loaded == log
    part = loaded.select(nodes=[0, 4, 5])
    assert _groups(part) == {name: _groups(log)[name] for name in part.node_names}


def test_one_partition_of_all_nodes_is_none(tmp_path: Path) -> None:
    log = import_logs(_dump(tmp_path, [("all", 0, 4, "a[1-2]"), ("all", 5, 8, "b[1-2]")])).log
    assert dict(log.provenance.partitions) == {}


def test_an_anonymous_log_has_none_and_nor_has_one_of_very_many(tmp_path: Path) -> None:
    log = import_logs(_dump(tmp_path, JOBS)).log
    assert dict(anonymised(log, b"0123456789abcdef").provenance.partitions) == {}
    many = [(f"user{number}", 0, 4, f"n{number}") for number in range(MOST_PARTITIONS + 1)]
    assert dict(import_logs(_dump(tmp_path, many)).log.provenance.partitions) == {}
    assert len(import_logs(_dump(tmp_path, many[1:])).log.provenance.partitions) == MOST_PARTITIONS


def test_a_file_with_what_is_no_node_set_is_refused() -> None:
    with pytest.raises(BadValue, match="must be a mapping from names to node sets"):
        LogProvenance(partitions={"debug": "n[4-1]"})
    with pytest.raises(BadValue, match="must be a mapping from names to node sets"):
        LogProvenance(partitions={"debug": 4})  # type: ignore[dict-item]  # the mistake under test


def _phillips(log: EventLog) -> Iterator[tuple[str, float, str]]:
    """Yield partition, seconds within the log, and node set of each job in the dump."""
    with gzip.open(site_data("pernode/xdmod-phillips.sacct.log.gz"), "rt", encoding="utf-8") as file:
        for cells in csv.reader(file, delimiter="|", quoting=csv.QUOTE_NONE):
            begin_s, end_s = (datetime.fromisoformat(f"{cell}+00:00").timestamp() for cell in cells[12:14])
            if begin_s < end_s:  # else none was assigned
                yield cells[3], max(0.0, min(end_s, log.end_s) - max(begin_s, log.start_s)), cells[24]


def _wagap(log: EventLog) -> Iterator[tuple[str, float, str]]:
    with gzip.open(site_data("pernode/wagap-2013.swf.gz"), "rt", encoding="utf-8") as file:
        for line in file:
            if not line.startswith(";"):
                cells = line.split()
                begin_s = float(cells[1]) + float(cells[2])
                end_s = min(begin_s + float(cells[3]), log.end_s)
                yield cells[19], max(0.0, end_s - max(begin_s, log.start_s)), ",".join(set(cells[18][1:-1].split(",")))


@pytest.mark.parametrize(
    ("name", "jobs"), [("pernode/xdmod-phillips.sacct.log.gz", _phillips), ("pernode/wagap-2013.swf.gz", _wagap)]
)
def test_those_of_real_records_are_those_of_plain_sums(
    name: str, jobs: Callable[[EventLog], Iterator[tuple[str, float, str]]]
) -> None:
    log = import_logs(site_data(name)).log
    held_s: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for partition, lasting_s, nodes in jobs(log):
        for node in NodeSet(nodes):
            held_s[node][partition] += lasting_s
    longest = {node: max(held_s[node], key=lambda each: held_s[node][each]) for node in log.node_names}
    assert _groups(log) == longest
    assert len(set(longest.values())) > 2
