"""Kinds of nodes: a log keeps them through files, parts and edits, and a log without them is what it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from bftrain import BadInput, BadValue, EventLog, NodesJoined, NodesLeft, NodeState, load_log, save_log
from bftrain_datasets.importing.anonymise import anonymised, pseudonym
from bftrain_datasets.log.edits import close_short_gaps, mark_down
from bftrain_datasets.log.eventlog import LogBuilder, log_from_pool_changes
from bftrain_datasets.log.measures import largest_by_kind, summarise
from tests.helpers.in_process import CommandLine

SUFFIXES = (".npz", ".csv", ".parquet")
KINDS = {"a1": "fast", "b1": "slow one", "a2": "fast", "b2": "slow one"}


def mixed_log(kinds: dict[str, str] | None = None) -> EventLog:
    """Return a log of 100 s in which two nodes of each of two kinds come and go."""
    return log_from_pool_changes(
        [(0.0, ("a1", "b1"), ()), (10.0, ("b2", "a2"), ()), (30.0, (), ("a2", "b1")), (80.0, ("b1",), ("a1",))],
        node_names=("a1", "b1", "a2", "b2"),
        end_s=100.0,
        kinds=KINDS if kinds is None else kinds,
    )


def test_nodes_that_join_come_by_kind() -> None:
    assert list(mixed_log().events()) == [
        NodesJoined(time_s=0.0, nodes=("a1",), kind="fast"),
        NodesJoined(time_s=0.0, nodes=("b1",), kind="slow one"),
        NodesJoined(time_s=10.0, nodes=("a2",), kind="fast"),
        NodesJoined(time_s=10.0, nodes=("b2",), kind="slow one"),
        NodesLeft(time_s=30.0, nodes=("b1", "a2")),
        NodesLeft(time_s=80.0, nodes=("a1",)),
        NodesJoined(time_s=80.0, nodes=("b1",), kind="slow one"),
    ]
    assert mixed_log().kind_of == KINDS


def test_a_log_without_kinds_is_what_it_was() -> None:
    plain = mixed_log({})
    assert plain.kind_names == ()
    assert plain.kind_of == {}
    assert plain.sha256 == "79925823b39ed2954d54a57435715b6dd2fe7cbc17751e41c2f1eed8a6127029"
    assert all(getattr(event, "kind", "") == "" for event in plain.events())
    assert plain.sha256 != mixed_log().sha256


def test_the_hash_depends_on_the_kind_of_each_node_and_not_on_how_it_is_written() -> None:
    log = mixed_log()
    other = replace(log, kind_names=("unused", "slow one", "fast"), node_kinds=np.array([2, 1, 2, 1]))
    assert other.sha256 == log.sha256
    assert other.kind_names == log.kind_names == ("fast", "slow one")
    assert replace(log, node_kinds=np.array([0, 1, 1, 1])).sha256 != log.sha256


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"kind_names": ("x",), "node_kinds": np.zeros(3, dtype=np.int64)}, "has 3 values for 4 nodes, 1 kinds"),
        ({"kind_names": (), "node_kinds": np.zeros(4, dtype=np.int64)}, "has 4 values for 4 nodes, 0 kinds"),
        ({"kind_names": ("x",), "node_kinds": np.array([0, 0, 1, 0])}, "node_kinds: must lie between 0 and 0"),
        ({"kind_names": ("x", "x"), "node_kinds": np.zeros(4, dtype=np.int64)}, "kind_names: names 'x' twice"),
        ({"kind_names": ("",), "node_kinds": np.zeros(4, dtype=np.int64)}, "kind_names: must be printable"),
    ],
)
def test_kinds_that_do_not_fit_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(BadValue, match=says):
        replace(mixed_log({}), **given)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_keep_kinds(tmp_path: Path, suffix: str) -> None:
    log, path = mixed_log(), tmp_path / f"log{suffix}"
    save_log(log, path)
    again = load_log(path)
    assert again == log
    assert again.kind_of == KINDS


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_of_logs_without_kinds_are_as_before(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"log{suffix}"
    save_log(mixed_log({}), path)
    assert load_log(path).kind_names == ()
    if suffix == ".csv":
        assert "\ntime,node,state\n" in path.read_text()
    if suffix == ".npz":
        with np.load(path, allow_pickle=False) as held:
            assert "kind_names" not in held.files


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("0,n,idle,v\n1,n,busy,w\n", r"log.csv:3: node 'n' has two kinds, 'v' and 'w'"),
        ("0,n,idle,\n", r"log.csv:2: kind: '' is not a name"),
        ("0,n,idle\n", "the row has 3 cells instead of 4"),
    ],
)
def test_kinds_in_a_table_must_be_one_for_each_node(tmp_path: Path, rows: str, says: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"time,node,state,kind\n{rows}")
    with pytest.raises(BadInput, match=says):
        load_log(path)


def test_a_parquet_table_with_two_kinds_of_a_node_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    rows = {"kind": ["v", "w"], "time": [0.0, 1.0], "node": ["n", "n"], "state": ["idle", "busy"]}
    parquet.write_table(pa.table(rows), path)
    with pytest.raises(BadInput, match=r"log.parquet: node 'n' has two kinds, 'v' and 'w'"):
        load_log(path)


def test_a_builder_wants_a_kind_for_every_node() -> None:
    builder = LogBuilder(("n", "m"))
    builder.add(0.0, "n", NodeState.IDLE)
    builder.set_kind("n", "v")
    with pytest.raises(BadInput, match="node 'm' has no kind, but other nodes have"):
        builder.build(end_s=1.0)
    with pytest.raises(BadInput, match="node 'n' has two kinds, 'v' and 'w'"):
        builder.set_kind("n", "w")


def test_parts_and_edits_keep_kinds() -> None:
    log = mixed_log()
    part = log.select(nodes=[3, 0], window=(5.0, 50.0))
    assert (part.node_names, part.kind_of) == (("b2", "a1"), {"b2": "slow one", "a1": "fast"})
    assert log.select(nodes=[0, 2]).kind_names == ("fast",)
    assert mark_down(log, [(20.0, 25.0)]).kind_of == KINDS
    closed, count, _ = close_short_gaps(log, 21.0)
    assert (count, closed.kind_of) == (1, KINDS)
    key = b"k" * 16
    assert anonymised(log, key).kind_of == {pseudonym(name, key): kind for name, kind in KINDS.items()}


def test_figures_by_kind() -> None:
    figures = summarise(mixed_log()).kinds
    assert {kind: (each.nodes, each.largest) for kind, each in figures.items()} == {"fast": (2, 2), "slow one": (2, 2)}
    assert figures["fast"].idle_node_hours * 3600 == pytest.approx(80 + 20)
    assert figures["slow one"].idle_node_hours * 3600 == pytest.approx(30 + 20 + 90)
    assert figures["slow one"].idle_share == pytest.approx(140 / 200)
    assert summarise(mixed_log({})).kinds == {}
    assert largest_by_kind(mixed_log({})) == {"": 4}


def imported_with_kinds(bftrain: CommandLine, tmp_path: Path, name: str, text: str) -> EventLog:
    """Import jobs on a1, a2, b1 and b2 with this file of kinds."""
    (tmp_path / "jobs").write_text("JobID|Start|End|NodeList\n1|1700000000|1700000009|a[1-2],b[1-2]\n")
    (tmp_path / name).write_text(text)
    done = bftrain("import", tmp_path / "jobs", "-o", tmp_path / "log.npz", "--kinds", tmp_path / name)
    if done.code:
        raise BadInput(done.err)
    return load_log(tmp_path / "log.npz")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kinds.toml", 'fast = ["a[1-2]", "a[7-9]"]\n"slow one" = "b[1-2]"\n'),
        ("kinds.csv", 'nodes,kind\n"a1,a2",fast\nb1,slow one\nb2,slow one\nb3,slow one\n'),
    ],
)
def test_kinds_out_of_a_file(bftrain: CommandLine, tmp_path: Path, name: str, text: str) -> None:
    named_log = imported_with_kinds(bftrain, tmp_path, name, text)
    assert named_log.kind_of == KINDS
    assert named_log.provenance.steps[-1] == f"kinds of nodes from {name}: fast 2, slow one 2"


def test_kinds_by_the_places_of_nodes(bftrain: CommandLine, tmp_path: Path) -> None:
    named_log = imported_with_kinds(bftrain, tmp_path, "kinds.toml", 'v = "0:3"\nk = "3:"\n')
    assert named_log.kind_of == {"a1": "v", "a2": "v", "b1": "v", "b2": "k"}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("kinds.toml", 'v = "a[1-2],b1"\nw = "b[1-2]"\n', r"kinds.toml: w: node 'b1' has two kinds, 'v' and 'w'"),
        ("kinds.toml", 'v = "a[1-2]"\n', "assigns no kind to node 'b1' and 1 other node"),
        ("kinds.toml", "", "has no kind"),
        ("kinds.toml", "v = 3\n", "kinds.toml: v: 3 is not a node set"),
        ("kinds.toml", 'v = "a["\n', "kinds.toml: v: 'a\\[' is not a node set"),
        ("kinds.toml", "v = [\n", "not valid TOML"),
        ("kinds.toml", '"" = "a1"\n', "'' is not a name of a kind"),
        ("kinds.toml", 'v = "0:9"\n', "'0:9' selects no nodes from 0:4"),
        ("kinds.csv", "node,kind\n", "kinds.csv:1: the columns must be nodes and kind"),
        ("kinds.csv", "nodes,kind\na1,a2,v\n", "kinds.csv:2: the row has 3 cells instead of 2"),
        ("kinds.txt", "v=a1\n", "not a node set file: its name ends in '.txt'"),
    ],
)
def test_a_bad_kinds_file_is_refused(bftrain: CommandLine, tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        imported_with_kinds(bftrain, tmp_path, name, text)
