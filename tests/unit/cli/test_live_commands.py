"""The commands that talk to a live run, and its dashboard: what they print, and how they end."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bftrain import Client
from tests.helpers.in_process import CommandLine
from tests.helpers.live_inside import LOGGER, SchedulerFacts, ourselves, submit
from tests.helpers.live_thread import LiveThread, live_thread
from tests.helpers.schedulers import HooksView
from tests.helpers.timeouts import set_timeouts

ME = ourselves().user


def hand_in(run: LiveThread, name: str, **more: Any) -> None:  # noqa: ANN401 - any field
    run.do(lambda inside: submit(inside.service, name, **more))


def lend(run: LiveThread, *nodes: str) -> None:
    run.do(lambda inside: inside.world.lend(*nodes))


def kept(run: LiveThread, name: str) -> Any:  # noqa: ANN401 - a Kept
    return run.do(lambda inside: inside.daemon.task_store.find(name))


def test_a_queue_lists_what_waits_and_with_all_what_is_over(bftrain: CommandLine, run: LiveThread) -> None:
    assert bftrain("status", "--tasks").out.startswith("0 tasks\n")
    hand_in(run, "a", largest=1, work_samples=40.0)
    hand_in(run, "b", largest=1)
    hand_in(run, "c")
    lend(run, "n1")
    run.do(lambda inside: inside.service.cancel(ourselves(), "c"))
    run.do(lambda inside: inside.world.tell("a", "report", step=1, samples=10, size=1, loss=0.5))
    out = bftrain("status", "--tasks").out
    assert out.startswith("2 tasks\n")
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert lines["a"][:7] == ["a", ME, "running", "1", "25%", "0.5", "0"]
    assert lines["b"][:4] == ["b", ME, "waiting", "0"]
    assert "c" not in lines
    assert [task["state"] for task in json.loads(bftrain("status", "--tasks", "--all", "--json").out)] == [
        "cancelled",
        "running",
        "waiting",
    ]


def test_a_status_says_how_it_stands(bftrain: CommandLine, run: LiveThread) -> None:
    hand_in(run, "a")
    lend(run, "n1", "n2", "n3")
    run.do(lambda _: LOGGER.warning("something [odd] happened"))
    out = bftrain("status").out
    assert "3 available, 3 of them used" in out
    assert "1 running, 0 waiting, 0 paused, 0 over" in out
    assert f"unix:{run.socket}" in out
    assert "something [odd] happened" in out
    seen = json.loads(bftrain("status", "--json").out)
    assert (seen["pool"], seen["state"], seen["scheduler"]) == (3, "running", "inside")


def test_a_status_counts_the_commands_of_the_scheduler(bftrain: CommandLine, run: LiveThread) -> None:
    facts = SchedulerFacts(commands_a_minute=7, commands_limits={"at_rest": 4.0, "submissions": 30.0})
    run.do(lambda inside: setattr(inside.world, "known", facts))
    assert "7 commands in the last minute; 4 a minute at rest, up to 30 submissions" in bftrain("status").out


def test_a_status_of_a_task_says_all_of_it(bftrain: CommandLine, run: LiveThread) -> None:
    hand_in(run, "a", smallest=2, largest=3)
    lend(run, "n1", "n2")
    for step in (1, 2):
        run.do(lambda inside, step=step: inside.world.tell("a", "report", step=step, samples=10, size=2, loss=1 / step))
    for name in ("a", "#1"):
        out = bftrain("status", name).out
        for words in ("2: n1 n2", "2 to 3", "20 samples, 2 steps", "0.5", "train.py", "inside"):
            assert words in out, out
    assert json.loads(bftrain("status", "a", "--json").out)["nodes"] == ["n1", "n2"]
    lost = bftrain("status", "b")
    assert (lost.code, lost.out) == (3, "")
    assert "no task is called 'b'" in lost.err


def test_tasks_are_paused_resumed_and_cancelled(bftrain: CommandLine, run: LiveThread) -> None:
    hand_in(run, "a")
    hand_in(run, "b")
    lend(run, "n1")
    assert bftrain("task", "pause", "a", "#2").out == "a: paused\nb: paused\n"
    assert bftrain("task", "resume", "a").out == "a: waiting\n"
    assert [task["state"] for task in json.loads(bftrain("task", "cancel", "b", "--json").out)] == ["cancelled"]
    assert bftrain("task", "cancel", "b").code == 3


def test_one_that_cannot_be_changed_stops_no_other(bftrain: CommandLine, run: LiveThread) -> None:
    hand_in(run, "a")
    ended = bftrain("task", "cancel", "x", "a", "#7")
    assert (ended.code, ended.out) == (1, "a: cancelled\n")
    assert "warning: " in ended.err
    assert "'x'" in ended.err
    assert "2 of 3 tasks could not be changed" in ended.err


def test_nodes_are_drained_by_set_and_used_again(bftrain: CommandLine, run: LiveThread) -> None:
    hand_in(run, "a")
    lend(run, "n01", "n02", "n03")
    ended = bftrain("live", "drain", "n[01-02]", "n07")
    assert (ended.code, "warning: the live run does not know n07 yet;" in ended.err) == (0, True), ended.err
    rows = [line.split()[:2] for line in ended.out.splitlines() if "n0" in line]
    assert [name for name, _ in rows] == ["n01", "n02", "n07"]
    assert {state for _, state in rows} <= {"draining", "drained"}
    assert rows[2][1] == "drained"
    run.do(lambda _: None)
    listed = {one["name"]: one for one in json.loads(bftrain("live", "drain", "--json").out)}
    assert (listed["n03"]["state"], listed["n03"]["task"], listed["n01"]["state"]) == ("used", "a", "drained")
    ended = bftrain("live", "drain", "--end", "n[01-02,07]")
    assert (ended.code, ended.err) == (0, "")
    run.do(lambda _: None)
    assert {one["state"] for one in json.loads(bftrain("live", "drain", "--json").out)} == {"used"}
    refused = bftrain("live", "drain", "n[1-")
    assert (refused.code, "nid[0001-0004,7]" in refused.err) == (3, True)


def write_logs(run: LiveThread, **files: str) -> Path:
    folder = Path(kept(run, "a").run.folder, "logs")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.log").write_text(text)
    return folder


def test_logs_are_printed_line_by_line_with_their_worker(bftrain: CommandLine, run: LiveThread) -> None:
    hand_in(run, "a")
    assert bftrain("logs", "a").out == ""
    write_logs(run, n1="one\ntwo\r\n\x1b[31mred\nend", n2="x\n")
    assert bftrain("logs", "a").out == "n1: one\nn1: two\nn1: \ufffd[31mred\nn2: x\nn1: end\n"
    lines = [json.loads(line) for line in bftrain("logs", "#1", "--json").out.splitlines()]
    assert lines[2] == {"worker": "n1", "line": "\x1b[31mred"}
    assert bftrain("logs", "a", "-n", "1").out == "n1: \ufffd[31mred\nn2: x\nn1: end\n"


def test_of_a_log_of_many_megabytes_only_the_end_is_read(
    bftrain: CommandLine, run: LiveThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in(run, "a")
    last, line = 1024 * 1024, len("line 000000\n")
    text = "".join(f"line {number:06}\n" for number in range(100_000))
    write_logs(run, n1=text, n2="short\n")
    offsets: list[int] = []
    read = Client.log

    def noted(client: Client, name: str, file: str, offset: int) -> bytes:
        offsets.append(offset)
        return read(client, name, file, offset)

    monkeypatch.setattr(Client, "log", noted)
    ended = bftrain("logs", "a")
    shown = ended.out.splitlines()
    assert len(shown) == last // line + 1, "in whole lines"
    assert (shown[0], shown[-2:]) == (f"n1: line {100_001 - len(shown):06}", ["n1: line 099999", "n2: short"])
    assert ended.err == "warning: n1.log: only the end of its 1.2 MB; --all prints everything\n"
    assert (min(offsets[:-1]), offsets[-1]) == (len(text) - last, 0)
    whole = bftrain("logs", "a", "--all")
    assert (whole.out.count("\n"), whole.err) == (100_001, "")


def test_following_goes_on_when_the_middle_of_a_log_was_cut_out(
    bftrain: CommandLine, run: LiveThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in(run, "a")
    folder = write_logs(run, n1="one\ntwo\nthree\nfo")
    turns: list[int] = []

    def between(_: float) -> None:
        turns.append(1)
        if len(turns) == 1:
            (folder / "n1.log").write_text("one\nfour\n")
        elif len(turns) == 2:
            with (folder / "n1.log").open("a") as log:
                log.write("five\n")
        else:
            run.do(lambda inside: inside.world.tell("a", "done", step=9))

    monkeypatch.setattr("bftrain.live.commands.tasks.time.sleep", between)
    ended = bftrain("logs", "-f", "a")
    assert ended.out == "n1: one\nn1: two\nn1: three\nn1: five\n"
    assert ended.err == "warning: n1.log: cut at its limit; lines before this moment may be missing\n"


def test_following_goes_on_until_the_task_is_over(
    bftrain: CommandLine, run: LiveThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in(run, "a")
    folder = write_logs(run, n1="one\nhal")
    turns: list[int] = []

    def between(_: float) -> None:
        turns.append(1)
        if len(turns) == 1:
            with (folder / "n1.log").open("a") as log:
                log.write("f\ntwo\n")
            (folder / "n2.log").write_text("new\n")
        else:
            run.do(lambda inside: inside.world.tell("a", "done", step=9))

    monkeypatch.setattr("bftrain.live.commands.tasks.time.sleep", between)
    ended = bftrain("logs", "-f", "a")
    assert (ended.code, ended.out) == (0, "n1: one\nn1: half\nn1: two\nn2: new\n")
    assert len(turns) == 2


def test_following_can_be_ended(bftrain: CommandLine, run: LiveThread, monkeypatch: pytest.MonkeyPatch) -> None:
    hand_in(run, "a")

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bftrain.live.commands.tasks.time.sleep", interrupt)
    ended = bftrain("logs", "-f", "a")
    assert (ended.code, "the task continues" in ended.err) == (130, True)


def test_it_is_found_over_tcp_with_the_token(
    bftrain: CommandLine, run: LiveThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in(run, "a")
    assert "running" in bftrain("status", "--live", run.http, "--token-file", run.token_file).out
    assert bftrain("task", "pause", "a", "--live", run.http, "--token-file", run.token_file).out == "a: paused\n"
    monkeypatch.setenv("BFTRAIN_TOKEN", str(run.token_file))
    assert "1 task\n" in bftrain("status", "--tasks", "--live", run.http).out
    (tmp_path / "wrong").write_text("x" * 40)
    refused = bftrain("status", "--live", run.http, "--token-file", tmp_path / "wrong")
    assert (refused.code, "a token is needed" in refused.err) == (3, True)
    lost = bftrain("status", "--live", run.http, "--token-file", tmp_path / "none")
    assert (lost.code, "cannot be read" in lost.err) == (3, True)
    monkeypatch.delenv("BFTRAIN_TOKEN")
    assert "BFTRAIN_TOKEN" in bftrain("status", "--live", run.http).err


def test_without_an_answer_it_says_so(bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_timeouts(monkeypatch, restart_s=0.1)
    monkeypatch.delenv("BFTRAIN_LIVE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("bftrain.live.client.SYSTEM_SOCKET", tmp_path / "system.sock")
    ended = bftrain("status", "--tasks")
    assert (ended.code, ended.out) == (4, "")
    assert f"{tmp_path}/bftrain/live/api.sock: no live run answers" in ended.err
    (tmp_path / "system.sock").touch()
    assert str(tmp_path / "system.sock") in bftrain("status", "--tasks").err


def test_the_status_counts_reports_of_hooks(
    bftrain: CommandLine, run: LiveThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "hooks" not in bftrain("status").out
    hooks = HooksView()
    monkeypatch.setattr(run.inside.world, "facts", lambda: SchedulerFacts(hooks=hooks))
    assert "no messages" in bftrain("status").out
    hooks = HooksView(messages={"start": 1, "end": 1}, last_s=time.time())
    assert "1 end, 1 start; the last 0 s ago" in bftrain("status").out


# What PromQL and Grafana know by themselves
_WORDS = {"sum", "rate", "increase", "histogram_quantile", "by", "on", "and", "le", "instance"}


def dashboard(bftrain: CommandLine) -> Any:  # noqa: ANN401 - JSON is what it is
    return json.loads(bftrain("live", "--example", "grafana").out)


def expressions(board: Any) -> list[str]:  # noqa: ANN401 - as above
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]


def names(given: Iterable[str]) -> set[str]:
    words = re.findall(r"\b[a-z_]{2,}\b", re.sub(r"\{[^}]*\}|\[[^]]*\]", "", "\n".join(given)))
    return {word.removesuffix("_bucket") for word in words if word not in _WORDS}


def alerts(bftrain: CommandLine) -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(bftrain("live", "--example", "alerts").out)["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def test_every_alert_says_what_is_wrong_and_what_helps(bftrain: CommandLine) -> None:
    rules = alerts(bftrain)
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert "{{ $labels.instance }}" in rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")
    assert yaml.safe_load(json.loads(bftrain("live", "--example", "alerts", "--json").out)["example"])["groups"]


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool here: apt-get install prometheus")
def test_promtool_finds_nothing_wrong(bftrain: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(bftrain("live", "--example", "alerts").out)
    of_the_board = [
        {"record": f"r{number}", "expr": re.sub(r"\$__range|\$__rate_interval", "5m", expression)}
        for number, expression in enumerate(expressions(dashboard(bftrain)))
    ]
    (tmp_path / "board.yml").write_text(json.dumps({"groups": [{"name": "board", "rules": of_the_board}]}))
    for name in ("alerts.yml", "board.yml"):
        done = subprocess.run(
            ["promtool", "check", "rules", tmp_path / name], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_uses_all_exported_metrics_and_no_others(bftrain: CommandLine, tmp_path: Path) -> None:
    with live_thread(tmp_path) as run:
        run.inside.world.known = SchedulerFacts(pilots={"waiting": 1})
        run.do(lambda inside: submit(inside.service, "a"))
        run.do(lambda inside: inside.world.lend("n1"))
        text = run.do(lambda inside: inside.service.metrics.text())
    exported = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    board = expressions(dashboard(bftrain))
    assert all('instance=~"$instance"' in expression for expression in board)
    asked = names(board)
    assert asked <= exported, asked - exported
    warned = names(rule["expr"] for rule in alerts(bftrain))
    assert warned <= exported | {"up"}, warned - exported
    unshown = {"bftrain_start_time_seconds", "bftrain_last_decision_timestamp_seconds", "process_open_fds"}
    unshown |= {"process_max_fds", "process_start_time_seconds", "process_virtual_memory_bytes"}
    assert exported - asked == unshown | {"bftrain_journal_steps"}
