"""``bftrain replay --round``: what is asked for, written, shown and refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import fields

from bftrain import RoundSettings, generate_log, load_log, save_log, save_tasks, text_formats
from bftrain.cli.settings import OPTIONS as OF_DECIDING
from bftrain_replay.commands import replay_run
from bftrain_replay.commands.replay import OPTIONS as OF_REPLAYS
from bftrain_replay.commands.rounds import OPTIONS, SHARED
from bftrain_replay.rounds import round_engine
from bftrain_replay.rounds.round_settings import FINISHES, GANGS, KIND_ORDERS, LIKES
from tests.helpers.in_process import CommandLine
from tests.helpers.round_cases import gang

KINDS = {"v100": 4.0, "k80": 1.0}
CLUSTER = "v100=2,k80=2"


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.toml"
    specs = [
        gang(f"t{number}", 9000.0 + number, 1 + number % 2, 100.0 * number, speeds=KINDS, user=f"u{number % 2}")
        for number in range(8)
    ]
    save_tasks(specs, path)
    return path


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_setting_has_its_option() -> None:
    own = [field.name for field in fields(RoundSettings)]
    assert {*OPTIONS, *SHARED, "until_s", "entities", "prices", "racks"} == set(own)
    assert set(SHARED) <= {*OF_REPLAYS, *OF_DECIDING}
    assert not set(OPTIONS) & set(OF_REPLAYS)
    for name, choices in (("finish", FINISHES), ("like", LIKES), ("kind_order", KIND_ORDERS), ("gang", GANGS)):
        assert OPTIONS[name][0].choices == choices
    usual = RoundSettings()
    for name, default in (("policy", "fifo"), ("finish", "moment"), ("kind_order", "priority"), ("overtaking", "yes")):
        assert getattr(usual, name) == default
        assert OPTIONS[name][1].endswith(f"[{default}].")
    assert OPTIONS["max_backlog_s"][1].endswith(f"[{text_formats.duration(usual.max_backlog_s)}].")


def test_it_says_what_became_of_the_tasks(bftrain: CommandLine, tasks: Path) -> None:
    ended = bftrain("replay", "--cluster", CLUSTER, "--tasks", tasks, "--round", 360, "--policy", "max-min")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"{tasks} on v100=2,k80=2: max-min in rounds of 6 min")
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["tasks", "done", "8", "of", "8"] in lines
    for words in (
        "ended",
        "all done",
        "all tasks finished after",
        "moves to another kind",
        "of v100 ",
        "completion, s",
        "rho",
    ):
        assert words in ended.out
    assert len(lines) <= 24


def test_the_folder_and_the_figures(bftrain: CommandLine, tasks: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    words = ("replay", "--cluster", CLUSTER, "--tasks", tasks, "--round", 360, "--policy", "fifo", "--measure", "2..5")
    ended = bftrain(*words, "-o", folder, "--json", "-q", "--finish", "boundary", "--seed", 3)
    assert (ended.code, ended.err) == (0, "")
    output = json.loads(ended.out)
    assert output == json.loads((folder / "summary.json").read_text())
    table = rows(folder / "tasks.csv")
    measured = [float(row["finish_s"]) - float(row["submit_s"]) for row in table if row["measured"] == "true"]
    assert output["completion_s"]["mean"] == pytest.approx(sum(measured) / 4)
    assert (output["measured"], output["ended"], output["completion_s"]["count"]) == (4, "measured_done", 4)
    assert set(output["users"]) == {"u0", "u1"}
    held_h = sum(float(row["node_h"]) for row in table)
    assert output["used_node_h"] == pytest.approx(held_h)
    steps = rows(folder / "rounds.csv")
    assert output["used_node_h"] * 3600 == pytest.approx(sum(float(row["used_node_s"]) for row in steps))
    assert output["rounds"] == sum(int(row["rounds"]) for row in steps) == output["simulated_s"] / 360
    over_time = rows(folder / "over_time.csv")
    assert len(over_time) == 1000
    assert float(over_time[-1]["harvested"]) == pytest.approx(output["harvested"])
    assert output["settings"]["seed"] == 3
    assert output["inputs"]["cluster"] == {"v100": 2, "k80": 2}


def test_gavels_speeds_on_several_hosts(bftrain: CommandLine, tmp_path: Path) -> None:
    table = {
        "v100": {"('m (batch size 4)', 1)": {"null": 6.0}, "('m (batch size 4)', 2)": {"null": 10.0}},
        "v100_unconsolidated": {"('m (batch size 4)', 2)": {"null": 4.0}},
    }
    (tmp_path / "table.json").write_text(json.dumps(table), encoding="utf-8")
    lines = ["m (batch size 4)\trun\tdir\t-n\t0\t4000\t{}\t1\t-1\t0\n".format(gang) for gang in (1, 1, 2)]  # noqa: UP032 - tabs
    (tmp_path / "jobs.trace").write_text("".join(lines), encoding="utf-8")
    words = ("tasks", "import", tmp_path / "jobs.trace", "--speeds", tmp_path / "table.json", "-o", tmp_path / "t.toml")
    assert bftrain(*words, "--by-hosts").code == 0
    replay = ("replay", "--cluster", "v100=4", "--tasks", tmp_path / "t.toml", "--round", "100", "--policy", "fifo")
    for more, took_s, lost_samples in (
        (("--per-host", "2"), 400.0, 0.0),
        (("--per-host", "2", "--placement", "scattered"), 1000.0, 6000.0),
    ):
        table_of = tmp_path / f"out-{len(more)}"
        figures = json.loads(bftrain(*replay, *more, "--json", "-o", table_of).out)
        assert rows(table_of / "tasks.csv")[2]["finish_s"] == str(took_s)
        assert figures["lost_spread_samples"] == lost_samples
    assert "lost to spreading " in bftrain(*replay, *more).out
    assert "1 task with speeds by hosts, and which nodes lie together is not known" in bftrain(*replay).err
    refused = bftrain(*replay, "--placement", "scattered")
    assert (refused.code, "--per-host" in refused.err) == (3, True)


def test_the_configuration_runs_it_again(bftrain: CommandLine, tasks: Path, tmp_path: Path) -> None:
    shares = tmp_path / "shares.toml"
    shares.write_text("[entities]\nu0 = 3\n[prices]\nv100 = 2.5\n", encoding="utf-8")
    words = ("replay", "--cluster", CLUSTER, "--tasks", tasks, "--round", 360, "--policy", "hierarchical")
    ended = bftrain(*words, "--shares", shares, "--tables", "parquet", "-o", tmp_path / "one")
    assert ended.code == 0
    assert "cost" in ended.out
    config = tmp_path / "one" / "config.toml"
    first = config.read_text().splitlines()[0]
    assert first == (
        f"# bftrain replay --cluster v100=2,k80=2 --tasks {tasks} --tables parquet --config THIS_FILE -o NEW_FOLDER"
    )
    again = bftrain(*words[:5], "--config", config, "-o", tmp_path / "two")
    assert again.code == 0, again.err
    one, two = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("one", "two"))
    assert one["figures_sha256"] == two["figures_sha256"]
    assert one["settings"]["entities"]["u0"]["weight"] == 3.0
    assert one["cost"] == pytest.approx(2.5 * one["kinds"]["v100"]["used_node_h"] + one["kinds"]["k80"]["used_node_h"])
    assert (tmp_path / "one" / "tasks.parquet").exists()


def test_an_admission_and_metrics_are_those_of_every_replay(bftrain: CommandLine, tasks: Path, tmp_path: Path) -> None:
    words = ("replay", "--cluster", CLUSTER, "--tasks", tasks, "--round", 360, "--policy", "las")
    given = ("--admission", "load=1", "--metrics", "campaigns", "-o", tmp_path / "out")
    ended = bftrain(*words, *given)
    assert ended.code == 0, ended.err
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["settings"]["admission"] == "load=1"
    assert summary["metrics"]["campaigns"] == 4
    assert ["campaigns", "4"] in [line.split() for line in ended.out.splitlines()]
    assert summary["preemptions"] == 0
    refused = bftrain(*words, "--admission", "unknown")
    assert refused.code != 0
    assert "no admission is called 'unknown'" in refused.err


def test_on_a_log(bftrain: CommandLine, tasks: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.npz"
    save_log(generate_log(8, 0.2, 1), log)
    kinds = tmp_path / "kinds.csv"
    names = load_log(log).node_names
    kinds.write_text("nodes,kind\n" + "".join(f"{name},{'v100' if name < names[4] else 'k80'}\n" for name in names))
    words = ("replay", log, "--tasks", tasks, "--round", 60, "--kinds", kinds, "--json", "-q")
    ended = bftrain(*words, "-o", tmp_path / "out")
    assert ended.code == 0, ended.err
    output = json.loads(ended.out)
    assert set(output["kinds"]) == {"v100", "k80"}
    assert output["ended"] in {"log_end", "all_done"}
    assert len(output["inputs"]["log"]["sha256"]) == 64
    assert f"replay {log} --kinds {kinds} --tasks" in (tmp_path / "out" / "config.toml").read_text()


def test_warnings(bftrain: CommandLine, tasks: Path, tmp_path: Path) -> None:
    words = ("replay", "--cluster", "v100=2", "--tasks", tasks, "--round", 60, "-q")
    ended = bftrain(*words, "--max-backlog", 100)
    assert ended.code == 0
    assert "warning: overload: after 0.0 days" in ended.err
    assert "8 of 8 measured tasks are not done: the means are of the others only" in ended.err
    own = tmp_path / "own.py"
    own.write_text(
        "class Never:\n    name = 'never'\n    def priorities(self, contenders):\n"
        "        return contenders.submit_s - float('inf')\n"
    )
    ended = bftrain(*words, "--policy", f"{own}:Never")
    assert "warning: stalled: 8 tasks wait" in ended.err


def test_a_task_larger_than_its_users_quota_is_reported(bftrain: CommandLine, tasks: Path) -> None:
    words = ("replay", "--cluster", CLUSTER, "--tasks", tasks, "--round", 60, "-q", "--admission", "quota,nodes=1")
    ended = bftrain(*words)
    assert ended.err.count("needs 2 nodes and its user 'u1' may hold 1: it never runs") == 4
    assert "warning: stalled: 4 tasks wait" in ended.err


def test_a_policy_that_raises_leaves_an_older_result_as_it_was(
    bftrain: CommandLine, tasks: Path, tmp_path: Path
) -> None:
    odd, folder = tmp_path / "odd.py", tmp_path / "out"
    odd.write_text("def odd(*options):\n    return 1 / 0\n")
    words = ("replay", "--cluster", CLUSTER, "--tasks", tasks, "--round", 60, "-q", "-o", folder)
    assert bftrain(*words).code == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    ended = bftrain(*words, "--overwrite", "--policy", f"{odd}:odd")
    assert "ZeroDivisionError" in ended.err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "las"), "--policy: goes with --round"),
        (("--round", "360", "--solver", "greedy"), "--solver: means nothing in rounds"),
        (("--round", "360", "--baseline", "greedy"), "--baseline: means nothing in rounds"),
        (("--round", "360", "--ideal"), "--ideal: means nothing in rounds (leave it out, or replay without --round)"),
        (("--like", "gavel"), "--like: goes with --round"),
        (("--round", "0"), "--round: must be above 0, not 0"),
        (("--round", "360", "--measure", "1..99"), "--measure: goes to 99 (there are 8 tasks, the last is 7)"),
        (("--round", "360", "--until", "inf"), "--until: must be a finite number, not inf"),
        (("--until", "inf", "-o", "{tasks}.out"), "--until: must be a finite number above 0, not inf (leave it out"),
        (("--round", "360", "--measure", "x"), "--measure: is 'x'"),
        (("--round", "360", "--window", "1..2"), "window: means nothing on a cluster"),
        (("--round", "360", "--kinds", "{tasks}"), "--kinds: a cluster names its kinds itself"),
    ],
)
def test_what_is_refused(bftrain: CommandLine, tasks: Path, words: tuple[str, ...], said: str) -> None:
    given = [word.replace("{tasks}", str(tasks)) for word in words]
    ended = bftrain("replay", "--cluster", CLUSTER, "--tasks", tasks, *given)
    assert ended.code in {2, 3}
    assert said in ended.err


def test_quiet_it_prints_the_result_and_warnings_alone(bftrain: CommandLine, tasks: Path, tmp_path: Path) -> None:
    words = ("replay", "--cluster", CLUSTER, "--tasks", tasks, "--round", 360, "-o", tmp_path / "out", "--overwrite")
    assert bftrain(*words, "-q").err == ""
    warned = bftrain(*words, "-q", "--until", 360).err.splitlines()
    assert warned
    assert all(line.startswith("warning: ") for line in warned)


def test_what_is_missing(bftrain: CommandLine, tasks: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.npz"
    save_log(generate_log(2, 0.1, 1), log)
    assert "--tasks: is missing" in bftrain("replay", "--cluster", 4, "--round", 60).err
    assert "LOG: is missing" in bftrain("replay", "--tasks", tasks, "--round", 60).err
    both = bftrain("replay", log, "--cluster", 4, "--tasks", tasks, "--round", 60)
    assert "--cluster: a cluster takes the place of a log" in both.err


def test_interrupted_it_keeps_what_is_done(
    bftrain: CommandLine, tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def pressed_at_once() -> Iterator[Callable[[], bool]]:
        yield lambda: True

    monkeypatch.setattr(round_engine, "_WATCH_EVERY", 3)
    monkeypatch.setattr(replay_run, "interruption", pressed_at_once)
    folder = tmp_path / "out"
    words = ("replay", "--cluster", CLUSTER, "--tasks", tasks, "--round", 60, "--policy", "las")
    ended = bftrain(*words, "-o", folder)
    assert ended.code == 130
    assert f"interrupted; the result in {folder} covers a part" in ended.err
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["ended"], summary["complete"]) == ("interrupted", False)
    assert "bftrain: interrupted\n" in bftrain(*words).err


def test_a_run_in_rounds_has_a_page_and_pictures(bftrain: CommandLine, tasks: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert bftrain("replay", "--cluster", CLUSTER, "--tasks", tasks, "--round", 360, "-o", folder).code == 0
    at_once = (folder / "report.html").read_text()
    assert "Time shared in rounds" in at_once
    (folder / "report.html").unlink()
    assert bftrain("report", folder).code == 0
    assert (folder / "report.html").read_text() == at_once
    ended = bftrain("report", folder, "--svg", tmp_path / "svg", "--json")
    assert {path.name for path in (tmp_path / "svg").iterdir()} >= {"completion.svg", "rho.svg", "users.svg"}
    assert len(json.loads(ended.out)["written"]) == len(list((tmp_path / "svg").iterdir()))


def test_a_run_in_rounds_is_no_replay(bftrain: CommandLine, tasks: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert bftrain("replay", "--cluster", CLUSTER, "--tasks", tasks, "--round", 360, "-o", folder).code == 0
    ended = bftrain("export", folder, "--to", "perfetto", "-o", tmp_path / "trace.json")
    assert ended.code == 3
    assert "a run in rounds has figures, tables and a page: docs/rounds.md" in ended.err


class RecordedBar:
    """What a progress bar was given: how far it goes, of what, and how far it came."""

    def __init__(self, *given: object, done: str, **_: object) -> None:
        self.goal, self.done = given[-1], done
        self.came: list[float] = []
        BARS.append(self)

    def tell(self, _name: str, done: float, _count: int) -> None:
        self.came.append(done)

    def stop(self) -> None:
        """Do nothing: nothing is drawn."""


BARS: list[RecordedBar] = []


@pytest.mark.parametrize(
    ("more", "goal", "of"),
    [
        ((), 8, "tasks done"),
        (("--measure", "1..4"), 5, "tasks done"),
        (("--until", 9000), 9000.0, "hours simulated"),
        (("--until", 400_000, "--measure", "1..4"), 5, "tasks done"),
    ],
)
def test_the_bar_ends_where_the_run_does(
    bftrain: CommandLine, tasks: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[object, ...], goal: float, of: str
) -> None:
    monkeypatch.setattr(round_engine, "_WATCH_EVERY", 1)
    monkeypatch.setattr("bftrain_replay.commands.replay_run.ReplayProgress", RecordedBar)
    BARS.clear()
    ended = bftrain(
        "replay", "--cluster", CLUSTER, "--tasks", tasks, "--round", 60, "--policy", "fifo", *map(str, more)
    )
    assert ended.code == 0, ended.err
    assert [(bar.goal, bar.done) for bar in BARS] == [(goal, of)]
    came = BARS[0].came
    assert came == sorted(came)
    assert 0.6 * goal <= came[-1] <= goal


def test_on_a_log_the_bar_is_as_long_as_its_window(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bftrain_replay.commands.replay_run.ReplayProgress", RecordedBar)
    log, tasks = generate_log(4, 1, 1), tmp_path / "tasks.toml"
    save_log(log, tmp_path / "log.npz")
    save_tasks([gang("one", 1000.0)], tasks)
    BARS.clear()
    window = f"{log.start_s}..{log.start_s + 50_000}"
    ended = bftrain("replay", tmp_path / "log.npz", "--tasks", tasks, "--round", 60, "--window", window)
    assert (ended.code, [(bar.goal, bar.done) for bar in BARS]) == (0, [(50_000.0, "hours simulated")]), ended.err
