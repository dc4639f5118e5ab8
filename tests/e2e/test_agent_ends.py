"""A real agent and small workers without torch: notices, and how the ends of workers are reported."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest

from tests.helpers.one_node import (
    PATIENCE_S,
    SAVES,
    SAVES_ONCE,
    SLEEPS,
    SPEAKS,
    LeftWorker,
    OneNode,
    WorkerExit,
    tree,
    until,
)
from tests.helpers.processes import alive
from tests.helpers.scripted_agents import abandon


@pytest.mark.parametrize("order", ["agent first", "worker first", "prefork server first"])
def test_a_preemption_that_reaches_all_processes_at_once_is_reported_as_an_end_and_a_leave(
    one_node: OneNode, order: str
) -> None:
    one_node.start()
    worker = one_node.started(SAVES, "0")
    pids = tree(one_node)
    first = {"agent first": one_node.agent.pid, "worker first": worker, "prefork server first": one_node.prefork}[order]
    for pid in sorted(pids, key=lambda pid: pid != first):
        with suppress(ProcessLookupError):  # the first ones may have ended it already
            os.kill(pid, signal.SIGTERM)
    assert one_node.agent.wait(PATIENCE_S) == 0
    one_node.watched.until("down")
    ends = one_node.watched.all("exited")
    assert len(ends) == 1
    assert ends[0][2].code in {0, -signal.SIGKILL}
    assert not ends[0][2].finished
    assert one_node.watched.until("gone")[2] == "it left: SIGTERM"
    until(lambda: not alive(pids), "no process is left")


def test_with_a_grace_a_worker_that_saves_ends_well_and_then_its_agent_leaves(one_node: OneNode) -> None:
    one_node.start(grace_s=60)
    one_node.started(SAVES, "0.7")
    pids = tree(one_node)
    begun = time.monotonic()
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    assert one_node.watched.until("notice")[2] == pytest.approx(60, abs=10)
    assert one_node.watched.until("noticed")[1:] == ("n1", pytest.approx(60, abs=10))
    assert one_node.agent.wait(PATIENCE_S) == 0
    assert 0.7 < time.monotonic() - begun < 20, "it leaves when no worker is left, long before the grace is over"
    assert one_node.watched.until("exited")[2] == WorkerExit(0)
    assert one_node.watched.until("gone")[2] == "it left: SIGTERM"
    until(lambda: not alive(pids), "no process is left")


def test_a_worker_that_saves_since_the_schedulers_sigterm_gets_no_second_one(one_node: OneNode) -> None:
    one_node.start(grace_s=60)
    one_node.started(SAVES_ONCE)
    for pid in tree(one_node):
        os.kill(pid, signal.SIGTERM)
    until((one_node.folder / "saving").exists, "it saves")
    one_node.watched.until("noticed")
    one_node.hub.call(lambda: one_node.hub.workers.stop(one_node.ordered, 60.0))  # as the process launcher does
    end = one_node.watched.until("exited")[2]
    assert (end.code, end.stopped) == (0, True)


def test_a_worker_gets_no_second_sigterm_when_the_prefork_server_learns_last_of_the_first(one_node: OneNode) -> None:
    one_node.start(grace_s=60)
    worker = one_node.started(SAVES_ONCE)
    agent, prefork = one_node.agent.pid, one_node.prefork
    os.kill(prefork, signal.SIGSTOP)  # as on a machine that is busy
    for pid in (agent, prefork, worker):
        os.kill(pid, signal.SIGTERM)
    until((one_node.folder / "saving").exists, "it saves")
    one_node.watched.until("noticed")
    one_node.hub.call(lambda: one_node.hub.workers.stop(one_node.ordered, 60.0))
    one_node.hub.ask(lambda: one_node.hub.workers.inspect(one_node.ordered))  # after the other order
    one_node.watched.until("inspected")
    os.kill(prefork, signal.SIGCONT)
    end = one_node.watched.until("exited")[2]
    assert (end.code, end.stopped) == (0, True)


def test_when_the_grace_is_over_the_agent_leaves(one_node: OneNode) -> None:
    one_node.start(grace_s=0.8)
    one_node.started(SLEEPS)
    pids = tree(one_node)
    begun = time.monotonic()
    one_node.agent.send_signal(signal.SIGUSR1)
    one_node.watched.until("notice")
    assert one_node.agent.wait(PATIENCE_S) == 0
    assert time.monotonic() - begun >= 0.8
    until(lambda: not alive(pids), "no process is left")


def test_a_second_sigterm_ends_an_agent_at_once(one_node: OneNode) -> None:
    one_node.start(grace_s=60)
    one_node.started(SAVES, "60")
    pids = tree(one_node)
    one_node.agent.terminate()
    one_node.watched.until("notice")
    assert alive(pids) == set(pids)
    one_node.agent.terminate()
    time.sleep(1.1)
    assert alive(pids) == set(pids), "two at once are one: that of Slurm, and the one that srun passes on"
    one_node.agent.terminate()
    assert one_node.agent.wait(PATIENCE_S) == 0
    until(lambda: not alive(pids), "no process is left")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
def test_a_prefork_server_survives_the_signals_of_schedulers_and_tells_its_agent(
    one_node: OneNode, number: signal.Signals
) -> None:
    one_node.start(grace_s=60)
    worker = one_node.started(SLEEPS)
    os.kill(one_node.prefork, number)
    one_node.watched.until("notice")
    assert alive({one_node.agent.pid, one_node.prefork, worker}) == {one_node.agent.pid, one_node.prefork, worker}
    assert not one_node.watched.all("exited")


@pytest.mark.parametrize("manager_dies", ["before the notice", "after it"])
def test_without_a_manager_the_agent_itself_asks_its_workers_to_save(one_node: OneNode, manager_dies: str) -> None:
    one_node.start(grace_s=60)
    one_node.started(SAVES, "0.1")
    if manager_dies == "after it":
        one_node.agent.send_signal(signal.SIGUSR1)
        one_node.watched.until("notice")
        abandon(one_node.hub)
    else:
        abandon(one_node.hub)
        one_node.agent.terminate()
    assert one_node.agent.wait(PATIENCE_S) == 0


def test_what_a_worker_says_last_is_heard_before_its_end(one_node: OneNode) -> None:
    one_node.start()
    for number in range(1, 41):
        worker = one_node.spawn(SPEAKS, slot=number)
        _, name, exit_ = one_node.watched.until("exited", number)
        assert (name, exit_.code, exit_.finished) == (worker, 0, True)
        assert ("worker_message", worker, "report") in one_node.watched.heard


def test_the_log_of_a_worker_that_ends_soon_is_cut_too(one_node: OneNode) -> None:
    one_node.start(words=("--log-limit", "1"))
    one_node.spawn("for _ in range(300):\n    print('x' * 9_999)\nprint('last words')\nraise SystemExit(7)")
    exit_ = one_node.watched.until("exited")[2]
    assert exit_.tail.endswith("last words\n")
    log = one_node.folder / "0.log"
    assert (log.stat().st_size <= 1e6, log.read_text().endswith("last words\n")) == (True, True)


@pytest.mark.parametrize(
    ("ends_with", "code", "file", "finished"),
    [(0, None, "", ""), (7, 7, "", "finished"), (0, 7, "", ""), (0, None, "file", "finished"), (1, None, "file", "")],
)
def test_a_finish_code_or_file_says_that_the_work_is_done(
    one_node: OneNode, ends_with: int, code: int | None, file: str, finished: str
) -> None:
    one_node.start()
    over = one_node.folder / "over"
    script = f"import sys, pathlib\nif {file!r}: pathlib.Path({str(over)!r}).touch()\nsys.exit({ends_with})"
    one_node.spawn(script, finish_code=code, finish_file=str(over))
    exit_ = one_node.watched.until("exited")[2]
    assert (exit_.code, exit_.finished) == (ends_with, finished == "finished")


def test_the_end_of_a_worker_is_reported_to_managers_until_one_has_it_forgotten(one_node: OneNode) -> None:
    one_node.start()
    one_node.spawn(SPEAKS, place={"generation": 3, "rank": 1, "workers": 2})
    worker = one_node.ordered
    one_node.watched.until("exited")
    for _ in range(2):
        second = one_node.manager()
        left: LeftWorker = second.until("left")[1]
        assert (left.worker, left.place.generation, left.place.rank, left.place.workers, left.step) == (
            worker,
            3,
            1,
            2,
            41,
        )
        assert left.exit is not None
        assert (left.exit.code, left.exit.finished) == (0, True)
        assert 0 < left.exit.ago_s < PATIENCE_S
        assert left.report is not None
        assert left.report.total == 82
    one_node.hub.ask(lambda: one_node.hub.workers.drop_task("t"))
    one_node.manager().until("registered")
    assert not one_node.watched.all("left"), "no manager has any more use for it"


def test_the_end_of_a_worker_that_no_manager_saw_is_reported_and_a_refused_one_never_again(one_node: OneNode) -> None:
    one_node.start()
    pid = one_node.started(SAVES, "0")
    abandon(one_node.hub)
    os.kill(pid, signal.SIGTERM)
    until(lambda: not alive([pid]), "it ended")
    left: LeftWorker = one_node.manager(takes=False).until("left")[1]
    assert left.exit is not None
    assert (left.exit.code, left.exit.finished, left.report) == (0, False, None)
    one_node.manager().until("registered")
    assert not one_node.watched.all("left")
