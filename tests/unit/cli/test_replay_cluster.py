"""``bftrain replay --cluster`` and ``--kinds``: what they print and write, and what does not go together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bftrain import SpeedCurve, TaskSpec, load_log, save_log, save_tasks
from tests.helpers.in_process import CommandLine
from tests.unit.datasets.test_node_kinds import mixed_log

FAST, SLOW = SpeedCurve(nodes=(1, 2), rate=(10.0, 18.0)), SpeedCurve(nodes=(1, 2), rate=(2.0, 3.0))


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.toml"
    specs = [
        TaskSpec(name="a", curve=FAST, curves={"fast": FAST, "slow one": SLOW}, max_nodes=2, work_samples=180.0),
        TaskSpec(name="b", curve=SLOW, curves={"slow one": SLOW}, max_nodes=1, work_samples=40.0),
    ]
    save_tasks(specs, path)
    return path


def test_a_cluster_takes_the_place_of_a_log(bftrain: CommandLine, tmp_path: Path, tasks: Path) -> None:
    folder = tmp_path / "out"
    given = ("--cluster", "fast=2,slow one=2", "--tasks", tasks, "-o", folder, "--baseline", "greedy", "--ideal")
    ended = bftrain("replay", *given, "--json")
    assert ended.code == 0
    output = json.loads(ended.out)
    assert output["cluster"] == {
        "nodes": {"fast": 2, "slow one": 2},
        "until_s": None,
        "ended": {"exact": "all_done", "greedy": "all_done"},
    }
    assert (output["simulated_s"], output["makespan_s"], output["completion_s"]["mean"]) == (20.0, 20.0, 15.0)
    assert (output["efficiency"], output["ceiling"]) == (None, None)
    assert output["ideal"]["completion_over_fluid"] == pytest.approx(1.0)
    assert output["ideal"]["completion_over_least"] == pytest.approx(1.0)  # each runs alone, as fast as it can
    assert json.loads((folder / "summary.json").read_text())["ideal"] == output["ideal"]
    written = load_log(folder / "log.npz")
    assert (written.kind_names, written.end_s) == (("fast", "slow one"), 20.0)
    first = (folder / "config.toml").read_text().splitlines()[0]
    assert "replay --cluster 'fast=2,slow one=2' --ideal --tasks" in first
    assert "other_kind" in output["unused_node_h"]


def test_its_words_say_how_it_ended_and_what_is_ideal(bftrain: CommandLine, tmp_path: Path, tasks: Path) -> None:
    folder = tmp_path / "out"
    ended = bftrain("replay", "--cluster", "fast=2,slow one=2", "--tasks", tasks, "-o", folder, "--ideal")
    assert "exact ended after 20 s: all tasks are done" in ended.out
    assert "completion time, mean: 1.000 times the 15 s of the fluid of throughput" in ended.out
    assert "no policy can go below" in ended.out
    assert "efficiency U" not in ended.out
    given = ("--cluster", "fast=2,slow one=2", "--tasks", tasks, "--ideal", "--until", "5")
    short = bftrain("replay", *given, "-o", folder, "--overwrite")
    assert "exact ended after 5 s: the time given with --until is over" in short.out
    assert "completion time, mean: the 15 s of the fluid" in short.out  # nothing to compare: not all are done


def test_kinds_of_the_nodes_of_a_log(bftrain: CommandLine, tmp_path: Path, tasks: Path) -> None:
    save_log(mixed_log({}), tmp_path / "log.npz")
    (tmp_path / "kinds.toml").write_text('fast = "a[1-2]"\n"slow one" = "b[1-2]"\n')
    given = (tmp_path / "log.npz", "--tasks", tasks, "-o", tmp_path / "out", "--kinds", tmp_path / "kinds.toml")
    output = json.loads(bftrain("replay", *given, "--json").out)
    assert output["tasks_finished"] == 2
    # a: 10/s alone, with the second fast node 18/s from 10 s on; b: a slow node all the time
    rows = (tmp_path / "out" / "tasks.csv").read_text().splitlines()
    column = rows[0].split(",").index("finish_s")
    assert [float(row.split(",")[column]) for row in rows[1:]] == pytest.approx([10 + 80 / 18, 20.0])
    assert "--kinds" in (tmp_path / "out" / "config.toml").read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--cluster", "fast=2,slow one=2", "LOG"], 2, "--cluster: a cluster takes the place of a log"),
        (["--cluster", "fast=2", "--kinds", "KINDS"], 2, "--kinds: a cluster names its kinds itself"),
        (["--cluster", "fast=2", "--window", "0..5"], 2, "--window: is for logs: on a cluster nodes never leave"),
        (["--cluster", "fast=2", "--semantics", "published"], 2, "--semantics: is for logs"),
        (["--cluster", "fast=two"], 2, "'two' is not a number of nodes of 'fast'"),
        (["--cluster", "fast=2"], 3, "tasks.toml: this cluster can never hold task 'b', which runs on slow one only"),
        (["--cluster", "fast=2,slow one=2", "--ideal", "--objective", "max-min"], 3, "'a' has several"),
        (["LOG", "--until", "5"], 2, "--until: goes with --cluster only"),
        (["LOG", "--ideal"], 2, "--ideal: goes with --cluster only"),
        (["--journal", "LOG", "--cluster", "2"], 2, "--cluster"),
    ],
)
def test_what_does_not_go_together_is_said(
    bftrain: CommandLine, tmp_path: Path, tasks: Path, words: list[str], code: int, says: str
) -> None:
    save_log(mixed_log({}), tmp_path / "log.npz")
    (tmp_path / "kinds.toml").write_text('fast = "a[1-2]"\n')
    named = {"LOG": tmp_path / "log.npz", "KINDS": tmp_path / "kinds.toml"}
    options = ["--tasks", tasks] if "--journal" not in words else []
    ended = bftrain("replay", *(named.get(word, word) for word in words), *options, "-o", tmp_path / "out")
    assert (ended.code, ended.out) == (code, "")
    assert says in ended.err


@pytest.mark.parametrize("missing", ["--tasks", "-o"])
def test_what_is_missing_is_named(bftrain: CommandLine, tmp_path: Path, tasks: Path, missing: str) -> None:
    given = {"--tasks": tasks, "-o": tmp_path / "out"}
    words = [word for option, value in given.items() if option != missing for word in (option, value)]
    ended = bftrain("replay", "--cluster", "2", *words)
    assert ended.code == 2
    assert f"{missing}: is missing (bftrain replay --cluster NODES --tasks TASKS -o DIR)" in ended.err


def test_kinds_given_to_an_import_are_in_the_log(bftrain: CommandLine, tmp_path: Path) -> None:
    save_log(mixed_log({}), tmp_path / "log.csv")
    (tmp_path / "kinds.csv").write_text('nodes,kind\n"a1,a2",fast\n"b[1-2]",slow one\n')
    made = tmp_path / "made.npz"
    assert bftrain("import", tmp_path / "log.csv", "-o", made, "--kinds", tmp_path / "kinds.csv").code == 0
    assert load_log(made).kind_names == ("fast", "slow one")
    output = json.loads(bftrain("inspect", made, "--json").out)
    assert output["kinds"]["fast"]["nodes"] == 2
    assert "idle node-hours" in bftrain("inspect", made).out


def test_policies_on_the_same_cluster_compare(bftrain: CommandLine, tmp_path: Path, tasks: Path) -> None:
    for name, objective in (("one", "throughput"), ("other", "cost")):
        given = ("--cluster", "fast=1,slow one=2", "--tasks", tasks, "--objective", objective, "-o", tmp_path / name)
        assert bftrain("replay", *given).code == 0
    ended = bftrain("compare", tmp_path / "one", tmp_path / "other")
    assert (ended.code, "different" in ended.err) == (0, False)
    assert bftrain("replay", "--cluster", "4", "--tasks", tasks, "-o", tmp_path / "third").code == 0
    ended = bftrain("compare", tmp_path / "one", tmp_path / "third")
    assert (ended.code, "2 different clusters" in ended.err) == (3, True)


def test_prices_are_shown_and_names_that_fit_nothing_are_warned_of(
    bftrain: CommandLine, tmp_path: Path, tasks: Path
) -> None:
    shares = tmp_path / "shares.toml"
    shares.write_text("[entities]\nunknown = 3\n[prices]\nfast = 2.5\nfsat = 3\n")
    cluster = ("--cluster", "fast=2,slow one=2", "--tasks", tasks, "--shares", shares)
    ended = bftrain("replay", *cluster, "-o", tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["cost"] == pytest.approx((2 * 10.0 * 2.5 + 20.0) / 3600.0)
    assert "cost, priced node-hours" in ended.out
    for words in (ended.err, bftrain("replay", *cluster, "--round", "60", "--gang", "max").err):
        assert "these have shares but no tasks: unknown" in words
        assert "no node is of a kind that has a price: fsat" in words
