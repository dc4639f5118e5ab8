"""A part of a log, and a log without names: what is kept is kept exactly, and what must go is gone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bftrain import BadInput, EventLog, NodeState, load_log, sample_log, save_log
from bftrain_datasets.importing.anonymise import anonymised, new_key, pseudonym
from bftrain_datasets.log.edits import chosen_nodes, chosen_window
from bftrain_datasets.log.measures import fragments, summarise
from bftrain_datasets.log.provenance import LogFinding, LogProvenance, ProvenanceSource
from tests.helpers.in_process import CommandLine
from tests.helpers.transitions import log_from_transitions

IDLE, BUSY, DOWN = NodeState.IDLE, NodeState.BUSY, NodeState.DOWN
KEY = b"0123456789abcdef"
BEGIN_S = 1612951200.0


@pytest.fixture
def log() -> EventLog:
    """Six nodes in two racks, on a certain day, with a story that tells much."""
    names = ["secret-r1n1", "secret-r1n2", "secret-r1n3", "secret-r2n1", "secret-r2n2", "secret-r2n3"]
    return log_from_transitions(
        [
            *((BEGIN_S, name, IDLE) for name in names[:3]),
            (BEGIN_S + 60.25, names[0], BUSY),
            (BEGIN_S + 60.25, names[4], DOWN),
            (BEGIN_S + 600, names[1], BUSY),
            (BEGIN_S + 900, names[4], IDLE),
        ],
        node_names=names,
        end_s=BEGIN_S + 3600,
        provenance=LogProvenance(
            made_by="reader sacct",
            options={"preemptible": ["secret-queue"], "window": [BEGIN_S, None]},
            sources=(ProvenanceSource(name="secret.log", sha256="5ec4e7", size_bytes=3),),
            counts={"rows_read": 7, "rows_aside_no_usage": 2, "secret-count": 1},
            findings=(
                LogFinding(name="over_capacity", count=3, node_s=5.0, first="secret.log:7", done="secret"),
                LogFinding(name="secret-finding", count=1),
            ),
            steps=("kept secret-r1n1",),
        ),
    )


@pytest.fixture
def file(log: EventLog, tmp_path: Path) -> Path:
    path = tmp_path / "log.npz"
    save_log(log, path)
    return path


# Parts


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("0:2", [0, 1]),
        (":2", [0, 1]),
        ("4:", [4, 5]),
        (":", [0, 1, 2, 3, 4, 5]),
        ("secret-r2n[1-3]", [3, 4, 5]),
        ("secret-r2n1,secret-r1n2,secret-r2n1", [1, 3]),
    ],
)
def test_nodes_are_chosen_by_name_or_place_in_the_order_of_the_log(log: EventLog, text: str, places: list[int]) -> None:
    assert np.arange(6)[chosen_nodes(log, text)].tolist() == places


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("3:3", "selects no nodes from 0:6"),
        ("0:7", "selects no nodes from 0:6"),
        ("secret-r1n9", r"the log has no 'secret-r1n9' \(did you mean 'secret-r1n\d'"),
        ("x[1-9]", r"has no 'x1', 'x2', 'x3' and 6 others \(its nodes are secret-r1n1 to secret-r2n3\)"),
        ("a[", "is not a node set"),
        ("", "is not a node set"),
    ],
)
def test_nodes_that_are_not_there_are_named_with_a_suggestion(log: EventLog, text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        chosen_nodes(log, text)


def test_a_small_log_names_all_its_nodes() -> None:
    with pytest.raises(BadInput, match="known: a, b"):
        chosen_nodes(log_from_transitions([(0, "a", IDLE), (1, "b", IDLE)]), "x")


@pytest.mark.parametrize(
    ("text", "window"),
    [
        (":", (0, 3600)),
        (f"{BEGIN_S + 60}:", (60, 3600)),
        (":2021-02-10T10:30", (0, 1800)),
        ("2021-02-10T10:00:01:2021-02-10 10:30:00", (1, 1800)),
        ("last-10min", (3000, 3600)),
        ("first-0:20:00", (0, 1200)),
    ],
)
def test_a_window_is_seconds_or_times(log: EventLog, text: str, window: tuple[float, float]) -> None:
    assert chosen_window(log, text) == (BEGIN_S + window[0], BEGIN_S + window[1])


def test_a_window_outside_says_what_there_is(log: EventLog) -> None:
    with pytest.raises(BadInput, match=r"is not within.*UTC, 2021-02-10T10:00:00:2021-02-10T11:00:00"):
        chosen_window(log, "5:")
    with pytest.raises(BadInput, match="'last-2w' is not within"):
        chosen_window(log, "last-2w")
    with pytest.raises(BadInput, match=r"\(the log covers 1e\+300 to 1e\+300 seconds UTC\)"):
        chosen_window(log_from_transitions([(1e300, "a", IDLE)]), "5:")


def test_the_command_writes_the_part(bftrain: CommandLine, file: Path, log: EventLog, tmp_path: Path) -> None:
    out = tmp_path / "part.csv"
    ended = bftrain("slice", file, "-o", out, "--nodes", "secret-r1n[1-2]", "--window", ":2021-02-10T10:30")
    assert (ended.code, ended.err) == (0, "")
    assert "2 of 6 nodes" in ended.out
    part = load_log(out)
    assert part == log.select(nodes=[0, 1], window=(None, BEGIN_S + 1800))
    assert part.provenance.steps[-1].startswith("kept 2 of 6 nodes")
    output = json.loads(bftrain("slice", file, "-o", out, "--nodes", "3:", "--json").out)
    assert (output["nodes"], output["sha256"]) == (3, load_log(out).sha256)
    assert load_log(out).node_names == log.node_names[3:]


def test_a_log_is_not_replaced_by_its_part(bftrain: CommandLine, file: Path) -> None:
    before = file.read_bytes()
    ended = bftrain("slice", file, "-o", file, "--nodes", "0:2")
    assert (ended.code, "is the input" in ended.err, file.read_bytes()) == (2, True, before)


def test_nodes_may_stand_in_a_file(bftrain: CommandLine, file: Path, tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.txt"
    nodes.write_text("# the first rack\nsecret-r1n[1-2]\n")
    assert bftrain("slice", file, "-o", tmp_path / "part.npz", "--nodes", nodes).code == 0
    assert load_log(tmp_path / "part.npz").node_names == ("secret-r1n1", "secret-r1n2")
    nodes.write_text("secret-r1n7\n")
    ended = bftrain("slice", file, "-o", tmp_path / "part.npz", "--nodes", nodes)
    assert ended.code == 3
    assert f"{nodes}: the log has no 'secret-r1n7'" in ended.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "set --nodes, --window, --set leave-early"),
        (("--nodes", "x"), 3, "--nodes: the log has no 'x'"),
        (("--window", "x"), 3, "--window: 'x' is not a window"),
        (("--window", "1:2"), 3, "--window: '1:2' is not within the log"),
    ],
)
def test_what_cannot_be_cut_out_is_refused(
    bftrain: CommandLine, file: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    ended = bftrain("slice", file, "-o", tmp_path / "part.npz", *arguments)
    assert ended.code == code
    assert says in ended.err
    assert not (tmp_path / "part.npz").exists()


# Anonymous logs


@pytest.mark.parametrize("shift_times", [False, True])
def test_nothing_that_names_a_node_or_the_site_is_left(
    log: EventLog, tmp_path: Path, shift_times: bool  # noqa: FBT001 - as pytest calls it
) -> None:  # fmt: skip
    hidden = anonymised(log, KEY, shift_times=shift_times)
    for suffix in (".csv", ".npz"):
        save_log(hidden, tmp_path / f"log{suffix}")
    with np.load(tmp_path / "log.npz") as arrays:
        output = (tmp_path / "log.csv").read_text() + "".join(str(arrays[name].tobytes()) for name in arrays.files)
    output += repr(hidden.provenance)
    assert "secret" not in output
    assert "5ec4e7" not in output
    assert ("1612951200" in output) == (not shift_times)
    assert ("2021" in output) is False
    assert hidden.start_s == (0.0 if shift_times else BEGIN_S)
    assert hidden.span_s == 3600


def test_figures_that_tell_how_good_the_log_is_are_kept(log: EventLog) -> None:
    story = anonymised(log, KEY).provenance
    assert story.made_by == "reader sacct"
    assert story.counts == {name: log.provenance.counts[name] for name in log.provenance.counts if "secret" not in name}
    assert story.findings == (LogFinding(name="over_capacity", count=3, node_s=5.0),)
    strange = replace(log, provenance=LogProvenance(made_by="reader of-my-site"))
    assert anonymised(strange, KEY).provenance.made_by == "another reader"


@pytest.mark.parametrize("shift_times", [False, True])
def test_the_same_nodes_do_the_same_under_other_names(shift_times: bool) -> None:  # noqa: FBT001 - as pytest calls it
    log = (whole := sample_log()).select(window=(whole.start_s + 1000.0, None))
    hidden = anonymised(log, KEY, shift_times=shift_times)
    offset = log.start_s if shift_times else 0.0
    names = {name: pseudonym(name, KEY) for name in log.node_names}
    assert set(hidden.node_names) == set(names.values())
    assert [
        (at - offset, {names[name] for name in gone}, {names[name] for name in come})
        for at, gone, come in log.pool_changes()
    ] == [(at, set(gone), set(come)) for at, gone, come in hidden.pool_changes()]
    ours, theirs = summarise(log), summarise(hidden)
    assert (ours.fragments, ours.leaving, ours.pool) == (theirs.fragments, theirs.leaving, theirs.pool)
    assert hidden.end_s == log.end_s - offset


def test_down_time_stays_down_time(log: EventLog) -> None:
    assert summarise(anonymised(log, KEY)).down_node_hours == summarise(log).down_node_hours > 0


def test_one_key_gives_one_name_in_every_log_and_another_key_another(log: EventLog) -> None:
    part = log.select(nodes=[5, 2], window=(BEGIN_S + 60, None))
    assert set(anonymised(part, KEY).node_names) < set(anonymised(log, KEY).node_names)
    assert set(anonymised(log, new_key()).node_names).isdisjoint(anonymised(log, KEY).node_names)


def test_the_order_of_the_nodes_tells_nothing() -> None:
    names = [f"r{number // 32:02d}n{number % 32:02d}" for number in range(512)]
    log = log_from_transitions([(0, name, IDLE) for name in names], end_s=1)
    hidden = anonymised(log, KEY)
    assert list(hidden.node_names) == sorted(hidden.node_names)
    old = [names.index(name) for name in sorted(names, key=lambda name: pseudonym(name, KEY))]
    assert abs(np.corrcoef(old, np.arange(512))[0, 1]) < 0.2
    again = log_from_transitions([(0, name, IDLE) for name in reversed(names)], end_s=1)
    assert anonymised(again, KEY).sha256 == hidden.sha256
    assert fragments(hidden).length_s.tolist() == [1.0] * 512


def test_the_command_hides_the_dates_if_asked(bftrain: CommandLine, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "hidden.npz"
    assert "keeps its times" in bftrain("slice", "--anonymise", file, "-o", out).out
    output = json.loads(bftrain("slice", "--anonymise", file, "-o", out, "--shift-times", "--json").out)
    assert (output["times_shifted"], output["nodes"], load_log(out).start_s) == (True, 6, 0.0)


def test_every_run_gives_other_names(bftrain: CommandLine, file: Path, tmp_path: Path) -> None:
    runs = []
    for number in range(2):
        assert bftrain("slice", "--anonymise", file, "-o", tmp_path / f"{number}.csv").code == 0
        runs.append(set(load_log(tmp_path / f"{number}.csv").node_names))
    assert runs[0].isdisjoint(runs[1])
    assert {path.name for path in tmp_path.iterdir()} == {"log.npz", "0.csv", "1.csv"}
