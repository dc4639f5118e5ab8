"""A real agent and small workers without torch: notices, and how the ends of workers are told."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bftrain_elastic.courses import Exit, Left
from bftrain_elastic.footprints import alive
from bftrain_elastic.processes import children
from tests.helpers.one_node import (
    PATIENCE_S,
    SAVES,
    SAVES_ONCE,
    SLEEPS,
    SPEAKS,
    OneNode,
    tree,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def site(tmp_path: Path) -> Iterator[OneNode]:
    running = OneNode(tmp_path)
    yield running
    running.close()


# -- being told to go


@pytest.mark.parametrize("order", ["agent first", "worker first", "nursery first"])
def test_a_preemption_that_reaches_all_processes_at_once_is_told_as_an_end_and_a_leave(
    site: OneNode, order: str
) -> None:
    site.start()
    worker = site.started(SAVES, "0")
    pids = tree(site)
    first = {"agent first": site.agent.pid, "worker first": worker, "nursery first": site.nursery}[order]
    for pid in sorted(pids, key=lambda pid: pid != first):
        os.kill(pid, signal.SIGTERM)
    assert site.agent.wait(10) == 0
    site.watched.until("down")
    ends = site.watched.all("exited")
    assert len(ends) == 1
    assert ends[0][2].code in {0, -signal.SIGKILL}
    assert not ends[0][2].finished
    assert site.watched.until("gone")[2] == "it left: SIGTERM"
    until(lambda: not alive(pids), "no process is left")


def test_with_a_grace_a_worker_that_saves_ends_well_and_then_its_agent_leaves(site: OneNode) -> None:
    site.start(grace_s=20)
    site.started(SAVES, "0.7")
    pids = tree(site)
    begun = time.monotonic()
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    assert site.watched.until("notice")[2] == pytest.approx(20, abs=1)
    assert site.watched.until("noticed")[1:] == ("n1", pytest.approx(20, abs=1))
    assert site.agent.wait(10) == 0
    assert 0.7 < time.monotonic() - begun < 10, "it leaves when no worker is left"
    assert site.watched.until("exited")[2] == Exit(0)
    assert site.watched.until("gone")[2] == "it left: SIGTERM"
    until(lambda: not alive(pids), "no process is left")


def test_a_worker_that_saves_since_the_schedulers_sigterm_gets_no_second_one(site: OneNode) -> None:
    site.start(grace_s=20)
    site.started(SAVES_ONCE)
    for pid in tree(site):
        os.kill(pid, signal.SIGTERM)
    until((site.folder / "saving").exists, "it saves")
    site.watched.until("noticed")
    site.hub.call(lambda: site.hub.stop(site.ordered, 15.0))  # as the process launcher does
    assert site.watched.until("exited")[2] == Exit(0, stopped=True)


def test_when_the_grace_is_over_the_agent_leaves(site: OneNode) -> None:
    site.start(grace_s=0.8)
    site.started(SLEEPS)
    pids = tree(site)
    begun = time.monotonic()
    site.agent.send_signal(signal.SIGUSR1)
    site.watched.until("notice")
    assert site.agent.wait(10) == 0
    assert 0.8 <= time.monotonic() - begun < 5
    until(lambda: not alive(pids), "no process is left")


def test_a_second_sigterm_ends_an_agent_at_once(site: OneNode) -> None:
    site.start(grace_s=60)
    site.started(SAVES, "60")
    pids = tree(site)
    site.agent.terminate()
    site.watched.until("notice")
    assert alive(pids) == set(pids)
    site.agent.terminate()
    time.sleep(1.1)
    assert alive(pids) == set(pids), "two at once are one: that of Slurm, and the one that srun passes on"
    begun = time.monotonic()
    site.agent.terminate()
    assert site.agent.wait(10) == 0
    assert time.monotonic() - begun < 5
    until(lambda: not alive(pids), "no process is left")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
def test_a_nursery_survives_the_signals_of_schedulers_and_tells_its_agent(
    site: OneNode, number: signal.Signals
) -> None:
    site.start(grace_s=60)
    worker = site.started(SLEEPS)
    os.kill(site.nursery, number)
    site.watched.until("notice")
    assert alive({site.agent.pid, site.nursery, worker}) == {site.agent.pid, site.nursery, worker}
    assert not site.watched.all("exited")


@pytest.mark.parametrize("manager_dies", ["before the notice", "after it"])
def test_without_a_manager_the_agent_itself_asks_its_workers_to_save(site: OneNode, manager_dies: str) -> None:
    site.start(grace_s=60)
    site.started(SAVES, "0.1")
    if manager_dies == "after it":
        site.agent.send_signal(signal.SIGUSR1)
        site.watched.until("notice")
        site.hub.abandon()
    else:
        site.hub.abandon()
        site.agent.terminate()
    assert site.agent.wait(20) == 0


# -- how ends are told


def test_what_a_worker_says_last_is_heard_before_its_end(site: OneNode) -> None:
    site.start()
    for number in range(1, 41):
        worker = site.spawn(SPEAKS, slot=number)
        _, name, exit_ = site.watched.until("exited", number)
        assert (name, exit_.code, exit_.finished) == (worker, 0, True)
        assert ("said", worker, "report") in site.watched.heard


@pytest.mark.parametrize(
    ("ends_with", "code", "file", "finished"),
    [
        (0, None, "", ""),
        (7, 7, "", "finished"),
        (0, 7, "", ""),
        (0, None, "file", "finished"),
        (1, None, "file", ""),
    ],
)
def test_a_finish_code_or_file_says_that_the_work_is_done(
    site: OneNode, ends_with: int, code: int | None, file: str, finished: str
) -> None:
    site.start()
    over = site.folder / "over"
    script = f"import sys, pathlib\nif {file!r}: pathlib.Path({str(over)!r}).touch()\nsys.exit({ends_with})"
    site.spawn(script, finish_code=code, finish_file=str(over))
    exit_ = site.watched.until("exited")[2]
    assert (exit_.code, exit_.finished) == (ends_with, finished == "finished")


def test_the_end_of_a_worker_is_told_to_managers_until_one_has_it_forgotten(site: OneNode) -> None:
    site.start()
    site.spawn(SPEAKS, place={"generation": 3, "rank": 1, "workers": 2})
    worker = site.ordered
    site.watched.until("exited")
    for _ in range(2):
        second = site.manager()
        left: Left = second.until("left")[1]
        assert (left.worker, left.generation, left.rank, left.workers, left.step) == (worker, 3, 1, 2, 41)
        assert left.exit is not None
        assert (left.exit.code, left.exit.finished) == (0, True)
        assert 0 < left.exit.ago_s < PATIENCE_S
        assert left.report is not None
        assert left.report["total"] == 82
    site.hub.ask(lambda: site.hub.forget("t"))
    site.manager().until("registered")
    assert not site.watched.all("left"), "no manager has any more use for it"


def test_the_end_of_a_worker_that_no_manager_saw_is_told_and_a_refused_one_never_again(site: OneNode) -> None:
    site.start()
    pid = site.started(SAVES, "0")
    site.hub.abandon()
    os.kill(pid, signal.SIGTERM)
    until(lambda: not alive([pid]), "it ended")
    left: Left = site.manager(takes=False).until("left")[1]
    assert left.exit is not None
    assert (left.exit.code, left.exit.finished, left.report) == (0, False, None)
    site.manager().until("registered")
    assert not site.watched.all("left")


def test_an_end_is_forgotten_when_another_worker_starts_on_its_slot(site: OneNode) -> None:
    site.start()
    site.spawn(SPEAKS)
    site.watched.until("exited")
    site.started(SLEEPS)
    lives = site.ordered
    site.manager().until("registered")
    assert [one[1].worker for one in site.watched.all("left")] == [lives]


def test_a_dropped_task_leaves_no_end_behind(site: OneNode) -> None:
    site.start()
    site.started(SLEEPS)
    site.hub.ask(lambda: (site.hub.kill_task(site.watched, "t"), site.hub.forget("t")))
    site.watched.until("exited")
    site.manager().until("registered")
    assert not site.watched.all("left")


def test_a_worker_that_is_stopped_before_the_nursery_is_there_never_starts(site: OneNode) -> None:
    site.start()
    os.kill(site.nursery, signal.SIGKILL)
    until(lambda: children(site.agent.pid) not in ([], [site.nursery]), "another nursery")
    for slot in range(8):
        site.spawn(SLEEPS, slot=slot)
    for worker in [f"t/n1/{slot}/1-{slot + 1}" for slot in range(8)]:
        site.hub.call(lambda worker=worker: site.hub.stop(worker, 0.0))  # type: ignore[misc]  # the loop's
    site.watched.until("exited", 8)
    assert {one[2].code for one in site.watched.all("exited")} == {-9}
    site.nursery = children(site.agent.pid)[0]
    assert not children(site.nursery)
