"""``bftrain replay --cluster``, ``--kinds`` and ``bftrain rounds``: what they print and write."""

from __future__ import annotations

import csv
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from bftrain import EventLog, SpeedCurve, TaskSpec, generate_log, load_log, save_log, save_tasks
from tests.helpers.campaigns import CAMPAIGN_STRETCH
from tests.helpers.in_process import CommandLine, Ended

FAST, SLOW = SpeedCurve(nodes=(1, 2), rate=(10.0, 18.0)), SpeedCurve(nodes=(1, 2), rate=(2.0, 3.0))
CLUSTER = ("replay", "--cluster", "fast=2,slow one=2")
IN_ROUNDS = ("rounds", "--cluster", "v100=2,k80=2", "--tasks", "gangs.toml", "--round")


@pytest.fixture(autouse=True)
def _in_a_folder_with_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    curves = {"fast": FAST, "slow one": SLOW}
    tasks = [
        TaskSpec(name="a", curve=FAST, curves=curves, max_nodes=2, work_samples=180.0),
        TaskSpec(name="b", curve=SLOW, curves={"slow one": SLOW}, max_nodes=1, work_samples=40.0),
    ]
    save_tasks(tasks, Path("tasks.toml"))
    save_tasks([gang(number) for number in range(8)], Path("gangs.toml"))
    Path("shares.toml").write_text(
        "[entities]\nu0 = 3\nunknown = 3\n[prices]\nfast = 2.5\nv100 = 2.5\nfsat = 3\n", encoding="utf-8"
    )


def gang(number: int) -> TaskSpec:
    """Return a task of one node or two, four times as fast on a v100."""
    size = 1 + number % 2
    curves = {kind: SpeedCurve(nodes=(size,), rate=(rate * size,)) for kind, rate in (("v100", 4.0), ("k80", 1.0))}
    return TaskSpec(
        name=f"t{number}", curve=curves["v100"], curves=curves, min_nodes=size, max_nodes=size,
        work_samples=9000.0 + number, submit_s=100.0 * number, user=f"u{number % 2}",
    )  # fmt: skip


def rows(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def summary_of(folder: str = "out") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "summary.json").read_text())
    return found


def done(ended: Ended) -> Ended:
    assert ended.code == 0, ended.err
    return ended


def test_a_cluster_takes_the_place_of_a_log(bftrain: CommandLine) -> None:
    given = ("--tasks", "tasks.toml", "-o", "out", "--baseline", "greedy", "--json")
    output = json.loads(done(bftrain(*CLUSTER, *given)).out)
    assert output == summary_of()
    assert output["cluster"] == {
        "nodes": {"fast": 2, "slow one": 2},
        "until_s": None,
        "ended": {"exact": "all_done", "greedy": "all_done"},
    }
    assert (output["simulated_s"], output["makespan_s"], output["completion_s"]["mean"]) == (20.0, 20.0, 15.0)
    assert (output["efficiency"], output["ceiling"]) == (None, None)
    log = load_log(Path("out/log.npz"))
    assert (log.kind_names, log.end_s) == (("fast", "slow one"), 20.0)
    assert "replay --cluster 'fast=2,slow one=2' --tasks" in Path("out/config.toml").read_text()


def test_its_words_state_how_it_ended(bftrain: CommandLine) -> None:
    given = ("--tasks", "tasks.toml", "-o", "out")
    words = done(bftrain(*CLUSTER, *given)).out
    assert "exact ended after 20 s: all tasks are done" in words
    assert "efficiency U" not in words
    short = done(bftrain(*CLUSTER, *given, "--until", "5", "--overwrite")).out
    assert "exact ended after 5 s: the time given with --until is over" in short


def test_kinds_of_the_nodes_of_a_log(bftrain: CommandLine) -> None:
    rows_of_jobs = ("1|0|10|a[1-2],b[1-2]|COMPLETED", "2|60|100|a[1-2],b[1-2]|COMPLETED")
    Path("made.sacct").write_text("\n".join(("JobID|Start|End|NodeList|State", *rows_of_jobs, "")))
    Path("kinds.csv").write_text('nodes,kind\n"a1,a2",fast\n"b[1-2]",slow one\n')
    made = ("import", "made.sacct", "-o", "log.npz", "--window", "0:100", "--kinds", "kinds.csv")
    done(bftrain(*made))
    assert load_log(Path("log.npz")).kind_names == ("fast", "slow one")
    assert json.loads(bftrain("inspect", "log.npz", "--json").out)["kinds"]["fast"]["nodes"] == 2
    given = ("replay", "log.npz", "--tasks", "tasks.toml", "-o", "out", "--json")
    assert json.loads(done(bftrain(*given)).out)["tasks_finished"] == 2
    # a: 18/s on both fast nodes; b: 2/s on a slow one
    assert [float(row["finish_s"]) for row in rows("out/tasks.csv")] == [10.0, 20.0]


def test_policies_on_the_same_cluster_compare(bftrain: CommandLine) -> None:
    for name, objective in (("one", "throughput"), ("other", "cost")):
        done(bftrain(*CLUSTER, "--tasks", "tasks.toml", "--objective", objective, "-o", name))
    done(bftrain("compare", "one", "other"))
    done(bftrain("replay", "--cluster", "4", "--tasks", "tasks.toml", "-o", "third"))
    ended = bftrain("compare", "one", "third")
    assert (ended.code, "2 different clusters" in ended.err) == (3, True)


def test_prices_are_shown_and_names_that_fit_nothing_are_warned_of(bftrain: CommandLine) -> None:
    ended = done(bftrain(*CLUSTER, "--tasks", "tasks.toml", "--shares", "shares.toml", "-o", "out"))
    assert summary_of()["cost"] == pytest.approx((2 * 10.0 * 2.5 + 20.0) / 3600.0)
    assert "cost, priced node-hours" in ended.out
    for words in (ended.err, bftrain(*IN_ROUNDS, 360, "--shares", "shares.toml").err):
        assert "unknown" in words
        assert "these kinds have prices but no nodes: f" in words


def test_rounds_print_what_became_of_the_tasks(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    really = time.monotonic
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: 1e7 * really())  # a line every half minute
        ended = done(bftrain(*IN_ROUNDS, 6, "--policy", "max-min", "--set", "measure=2:5"))
    assert re.search(r"^max-min: \d of 6 tasks done, \d+ hours simulated, ", ended.err, re.MULTILINE)
    assert re.search(r"^ *measured +4 of 4, tasks 2:5", ended.out, re.MULTILINE)
    ended = done(bftrain(*IN_ROUNDS, 360, "--policy", "max-min"))
    lines = [line.split() for line in ended.out.splitlines()]
    assert ended.out.startswith("gangs.toml on v100=2,k80=2: max-min in rounds of 6 min")
    assert ["tasks", "done", "8", "of", "8"] in lines
    assert (len(lines) <= 24, ended.err) == (True, "")


def test_the_folder_and_the_figures_of_rounds(bftrain: CommandLine) -> None:
    given = ("--set", "measure=2:5", "--finish", "boundary", "--seed", 3, "--metrics", CAMPAIGN_STRETCH)
    ended = done(bftrain(*IN_ROUNDS, 360, *given, "-o", "out", "--json", "-q"))
    output, table, steps = summary_of(), rows("out/tasks.csv"), rows("out/rounds.csv")
    assert (json.loads(ended.out), ended.err) == (output, "")
    measured = [float(row["finish_s"]) - float(row["submit_s"]) for row in table if row["measured"] == "true"]
    assert output["completion_s"]["mean"] == pytest.approx(sum(measured) / 4)
    assert (output["measured"], output["ended"], output["completion_s"]["count"]) == (4, "measured_done", 4)
    assert set(output["users"]) == {"u0", "u1"}
    assert output["used_node_h"] == pytest.approx(sum(float(row["node_h"]) for row in table))
    assert output["used_node_h"] * 3600 == pytest.approx(sum(float(row["used_node_s"]) for row in steps))
    assert output["rounds"] == sum(int(row["rounds"]) for row in steps) == output["simulated_s"] / 360
    assert float(rows("out/over_time.csv")[-1]["harvested"]) == pytest.approx(output["harvested"])
    assert (output["settings"]["seed"], "campaigns" in output["metrics"]) == (3, True)
    assert output["inputs"]["cluster"] == {"v100": 2, "k80": 2}


def test_gavels_speeds_on_several_hosts(bftrain: CommandLine) -> None:
    table = {
        "v100": {"('m (batch size 4)', 1)": {"null": 6.0}, "('m (batch size 4)', 2)": {"null": 10.0}},
        "v100_unconsolidated": {"('m (batch size 4)', 2)": {"null": 4.0}},
    }
    Path("table.json").write_text(json.dumps(table), encoding="utf-8")
    lines = [f"m (batch size 4)\trun\tdir\t-n\t0\t4000\t{size}\t1\t-1\t0\n" for size in (1, 1, 2)]
    Path("jobs.trace").write_text("".join(lines), encoding="utf-8")
    done(bftrain("generate", "from-trace", "jobs.trace", "--speeds", "table.json", "-o", "t.toml", "--by-hosts"))
    replay = ("rounds", "--cluster", "v100=4", "--tasks", "t.toml", "--round", "100", "--policy", "fifo")
    for more, took_s, lost in (((), "400.0", 0.0), (("--placement", "scattered"), "1000.0", 6000.0)):
        ended = done(bftrain(*replay, "--set", "per-host=2", *more, "--json", "-o", f"out-{took_s}"))
        assert rows(f"out-{took_s}/tasks.csv")[2]["finish_s"] == took_s
        assert json.loads(ended.out)["lost_spread_samples"] == lost
    assert "lost to spreading " in bftrain(*replay, "--set", "per-host=2", *more).out
    assert "1 task with speeds by hosts, which have no effect" in bftrain(*replay).err


def test_the_configuration_of_rounds_runs_them_again(bftrain: CommandLine) -> None:
    given = ("--policy", "hierarchical", "--shares", "shares.toml", "--tables", "parquet", "-o", "one")
    done(bftrain(*IN_ROUNDS, 360, *given))
    first = Path("one/config.toml").read_text().splitlines()[0]
    assert first == (
        "# bftrain rounds --cluster v100=2,k80=2 --tasks gangs.toml --tables parquet --config THIS_FILE -o NEW_FOLDER"
    )
    done(bftrain(*IN_ROUNDS[:-1], "--config", "one/config.toml", "-o", "two"))
    one, two = summary_of("one"), summary_of("two")
    assert one["figures_sha256"] == two["figures_sha256"]
    assert one["settings"]["entities"]["u0"]["weight"] == 3.0
    assert one["cost"] == pytest.approx(2.5 * one["kinds"]["v100"]["used_node_h"] + one["kinds"]["k80"]["used_node_h"])
    assert Path("one/tasks.parquet").exists()


def test_the_former_spelling_runs_rounds_with_a_hint(bftrain: CommandLine) -> None:
    now = done(bftrain(*IN_ROUNDS, 360, "-o", "now"))
    former = done(bftrain("replay", *IN_ROUNDS[1:], 360, "-o", "former"))
    assert former.out == now.out
    assert "hint: this is now bftrain rounds" in former.err
    for config in (("--config", "now/config.toml"), ("--config=now/config.toml",)):
        again = done(bftrain("replay", *IN_ROUNDS[1:-1], *config))
        assert again.out == now.out


def test_rounds_do_not_offer_the_settings_of_a_replay(bftrain: CommandLine) -> None:
    assert bftrain("replay", *CLUSTER[1:], "--tasks", "tasks.toml", "--quick", "-o", "replayed").code == 0
    assert bftrain(*IN_ROUNDS[:-1], "--config", "replayed/config.toml").code != 0
    assert "replay's config.toml" not in " ".join(bftrain("rounds", "--help").out.split())


def test_completion_of_the_former_spelling_prints_no_hint_and_no_error(
    bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("bad.toml").write_text("x = [\n", encoding="utf-8")
    monkeypatch.setenv("_BFTRAIN_COMPLETE", "bash_complete")
    for words, place, expected in (
        ("--round 300 --pol", 4, "plain,--policy"),
        ("--config bad.toml --wi", 4, "plain,--window"),
    ):
        monkeypatch.setenv("COMP_WORDS", f"bftrain replay {words}")
        monkeypatch.setenv("COMP_CWORD", str(place))
        ended = bftrain()
        assert (ended.out.splitlines(), ended.err) == ([expected], "")


def test_rounds_on_a_log(bftrain: CommandLine) -> None:
    log: EventLog = generate_log(8, 0.2, 1)
    save_log(log, Path("log.npz"))
    kinds = [f"{name},{'v100' if name < log.node_names[4] else 'k80'}\n" for name in log.node_names]
    Path("kinds.csv").write_text("nodes,kind\n" + "".join(kinds))
    words = ("rounds", "log.npz", "--tasks", "gangs.toml", "--round", 60, "--kinds", "kinds.csv", "--json", "-q")
    output = json.loads(done(bftrain(*words, "-o", "out")).out)
    assert (set(output["kinds"]), len(output["inputs"]["log"]["sha256"])) == ({"v100", "k80"}, 64)
    assert output["ended"] in {"log_end", "all_done"}
    assert "rounds log.npz --kinds kinds.csv --tasks" in Path("out/config.toml").read_text()


@pytest.mark.parametrize(
    ("options", "warnings"),
    [
        (("--max-backlog", 100), ("overload: after 0.0 days", "8 of 8 measured tasks are not done")),
        (("--policy", "own.py:Never"), ("stalled: 8 tasks wait",)),
        (("--admission", "quota,nodes=1"), ("user 'u1' may use 1: it never runs", "stalled: 4 tasks wait")),
    ],
)
def test_rounds_that_do_not_end_well_are_warned_of(
    bftrain: CommandLine, options: tuple[str | float, ...], warnings: tuple[str, ...]
) -> None:
    Path("own.py").write_text(
        "class Never:\n    name = 'never'\n    def priorities(self, contenders):\n"
        "        return contenders.submit_s - float('inf')\n"
    )
    ended = done(bftrain(*IN_ROUNDS, 60, "-q", *options))
    assert all(line.startswith("warning: ") for line in ended.err.splitlines())
    assert [words for words in warnings if words not in ended.err] == []


OWN = """
import os

class Press:
    name = "press"
    sign = 1.0
    def priorities(self, contenders):
        if self.sign == 1.0:
            os.kill({}, 2)
        self.sign = -1.001 * self.sign  # the tasks take turns
        return self.sign * contenders.submit_s

def odd(*options):
    return 1 / 0
"""


def test_interrupted_rounds_keep_what_is_done_and_failed_ones_an_older_result(bftrain: CommandLine) -> None:
    Path("own.py").write_text(OWN.format(os.getpid()))
    curve = SpeedCurve(nodes=(1,), rate=(1.0,))
    tasks = [TaskSpec(name=f"t{at}", curve=curve, max_nodes=1, work_samples=9e6, submit_s=1.0 * at) for at in (0, 1)]
    save_tasks(tasks, Path("long.toml"))
    words = ("rounds", "--cluster", 1, "--tasks", "long.toml", "--round", 60, "--overwrite", "-o", "out")
    ended = bftrain(*words, "--policy", "own.py:Press")
    assert (ended.code, "interrupted; the result in out is partial" in ended.err) == (130, True), ended.err
    assert (summary_of()["ended"], summary_of()["complete"]) == ("interrupted", False)
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    ended = bftrain(*words, "--policy", "own.py:odd")
    assert (ended.code, "ZeroDivisionError" in ended.err) == (3, True)
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before


def test_rounds_have_a_page_and_pictures_but_no_trace(bftrain: CommandLine) -> None:
    done(bftrain(*IN_ROUNDS, 360, "-o", "out"))
    page = Path("out/report.html").read_text()
    Path("out/report.html").unlink()
    done(bftrain("report", "out"))
    assert Path("out/report.html").read_text() == page
    ended = done(bftrain("report", "out", "--svg", "svg", "--json"))
    assert {path.name for path in Path("svg").iterdir()} >= {"completion.svg", "rho.svg", "users.svg"}
    assert len(json.loads(ended.out)["written"]) == len(list(Path("svg").iterdir()))
    ended = bftrain("report", "out", "-o", "trace.json")
    assert (ended.code, "is of the format 'bftrain rounds 1', not 'bftrain replay 1'" in ended.err) == (3, True)
