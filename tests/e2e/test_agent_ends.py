"""Real agents and small workers without torch: notices, how ends are told, managers that come and go, and signals."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bftrain_elastic.courses import Exit, Left
from bftrain_elastic.footprints import alive
from bftrain_elastic.hub import Hub
from bftrain_elastic.local import LocalAgents
from bftrain_elastic.messages import Message
from bftrain_elastic.processes import children, descendants, state_of
from bftrain_elastic.sealed import Sealed
from bftrain_elastic.secret import make_secret, read_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 30.0

# What many programs do: they save when they are told to go, and end well
SAVES = """
import signal, sys, time
from pathlib import Path
def save(*_):
    time.sleep(float(sys.argv[1]))
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
Path("started").touch()
while True:
    time.sleep(0.01)
"""
SLEEPS = """
import time
from pathlib import Path
Path("started").touch()
while True:
    time.sleep(0.01)
"""
# Saves when it is told to go, and cannot be told twice
SAVES_ONCE = """
import os, signal, sys, time
from pathlib import Path
def save(*_):
    if Path("saving").exists():
        os._exit(3)
    Path("saving").touch()
    time.sleep(1.0)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
Path("started").touch()
while True:
    time.sleep(0.01)
"""
# Does not handle SIGTERM but waits for it, as init programs of containers do
WAITS_FOR_SIGNAL = """
import signal, sys
from pathlib import Path
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
Path("started").touch()
signal.sigwait({signal.SIGTERM})
sys.exit(0)
"""
# Leaves its work to a thread
THREADED = """
import threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
def write(name):
    time.sleep(0.5)
    Path(name).touch()
threading.Thread(target=write, args=("thread",)).start()
ThreadPoolExecutor(1).submit(write, "pool")
"""
# Says that it is done with the last thing it does
SPEAKS = """
from bftrain_elastic.channel import Channel
channel = Channel.from_environment()
channel.say({"say": "report", "t": 1.0, "step": 41, "size": 1, "samples": 2, "loss": None, "total": 82})
channel.say({"say": "finished"})
"""


class Watched:
    """A listener that starts workers and keeps what it hears, and the manager's side of it."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.takes = True  # what other managers left
        self._news = threading.Condition()

    def _hear(self, *what: object) -> None:
        with self._news:
            self.heard.append(what)
            self._news.notify_all()

    def told(self, told: Message) -> None:
        self._hear(told["told"], told.get("node"), told.get("reason", told.get("grace_s")))

    def node_up(self, node: str) -> None:
        self._hear("up", node)

    def node_gone(self, node: str) -> None:
        self._hear("down", node)

    def notice(self, node: str, grace_s: float) -> None:
        self._hear("noticed", node, grace_s)

    def adopt(self, _task: str, _node: str, left: Message) -> bool:
        self._hear("left", Left.read(left))
        return self.takes

    def spawned(self, _task: str, worker: str, _port: int) -> None:
        self._hear("spawned", worker)

    def inspected(self, _task: str, worker: str, process_state: str) -> None:
        self._hear("inspected", worker, process_state)

    def said(self, _task: str, worker: str, message: Message) -> None:
        self._hear("said", worker, message["say"])

    def exited(self, _task: str, worker: str, exit: Exit) -> None:  # noqa: A002 - as in Course
        self._hear("exited", worker, exit)

    def tick(self, now: float) -> None: ...

    def all(self, what: str) -> list[tuple[Any, ...]]:
        return [one for one in self.heard if one[0] == what]

    def until(self, what: str, count: int = 1) -> tuple[Any, ...]:
        with self._news:
            assert self._news.wait_for(lambda: len(self.all(what)) >= count, PATIENCE_S), f"{what}: {self.heard}"
        return self.all(what)[count - 1]


class Site:
    """One node, and one manager after the other at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = make_secret(folder / "secret")
        self.epoch = 0
        self.port = 0
        self.hub: Hub
        self.manager()

    def manager(self, epoch: int | None = None, *, takes: bool = True) -> Watched:
        """Let another manager take the place of the one before, which says nothing more."""
        if self.epoch:
            self.hub.abandon()
        self.epoch = self.epoch + 1 if epoch is None else epoch
        self.watched = Watched()
        self.watched.takes = takes
        self.hub = Hub(self.watched.told, self.secret, port=self.port, closed=True, epoch=self.epoch)
        self.port = self.hub.address[1]
        self.hub.ask(lambda: self.hub.attach(self.watched))
        self.hub.open()
        return self.watched

    def start(self, grace_s: float = 0.0) -> None:
        """Start the agent."""
        self.agents = LocalAgents(
            self.hub, self.folder / "secret", preload=(), tmp=self.folder, grace_s=grace_s, slots=64
        )
        self.agents.start("n1")
        self.agent = self.agents.running["n1"]
        self.watched.until("warm")
        self.nursery = children(self.agent.pid)[0]

    def spawn(self, script: str, *words: str, slot: int = 0, **more: object) -> str:
        """Start a worker."""
        path = self.folder / f"script{slot}.py"
        path.write_text(script)
        self.ordered = self.hub.ask(lambda: self.hub.new_name("t", "n1", slot))
        order = {
            "do": "spawn", "worker": self.ordered, "task": "t", "argv": [str(path), *words], "env": {},
            "cwd": str(self.folder), "log": str(self.folder / f"{slot}.log"), "slot": slot, "warm": True,
            **more,
        }  # fmt: skip
        self.hub.call(lambda: self.hub.spawn(self.watched, "n1", "t", order))
        return self.ordered

    def started(self, script: str, *words: str) -> int:
        """Start a worker, and return its process once it does what its script says."""
        self.spawn(script, *words)
        until((self.folder / "started").exists, "the worker is there")
        return children(self.nursery)[0]

    def close(self) -> None:
        """End everything, whoever was stopped."""
        for pid in (self.agent.pid, self.nursery):
            if alive([pid]):
                os.kill(pid, signal.SIGCONT)
        self.agent.kill()
        self.agent.wait(10)
        self.agents.running.clear()
        self.hub.abandon()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    running = Site(tmp_path)
    yield running
    running.close()


def until(true: Callable[[], object], words: str, timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, words
        time.sleep(0.002)


def tree(site: Site) -> list[int]:
    return [site.agent.pid, *descendants(site.agent.pid)]


# -- being told to go


@pytest.mark.parametrize("order", ["agent first", "worker first", "nursery first"])
def test_a_preemption_that_reaches_all_processes_at_once_is_told_as_an_end_and_a_leave(site: Site, order: str) -> None:
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


def test_with_a_grace_a_worker_that_saves_ends_well_and_then_its_agent_leaves(site: Site) -> None:
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


def test_a_worker_that_saves_since_the_schedulers_sigterm_gets_no_second_one(site: Site) -> None:
    site.start(grace_s=20)
    site.started(SAVES_ONCE)
    for pid in tree(site):
        os.kill(pid, signal.SIGTERM)
    until((site.folder / "saving").exists, "it saves")
    site.watched.until("noticed")
    site.hub.call(lambda: site.hub.stop(site.ordered, 15.0))  # as the process launcher does
    assert site.watched.until("exited")[2] == Exit(0, stopped=True)


def test_when_the_grace_is_over_the_agent_leaves(site: Site) -> None:
    site.start(grace_s=0.8)
    site.started(SLEEPS)
    pids = tree(site)
    begun = time.monotonic()
    site.agent.send_signal(signal.SIGUSR1)
    site.watched.until("notice")
    assert site.agent.wait(10) == 0
    assert 0.8 <= time.monotonic() - begun < 5
    until(lambda: not alive(pids), "no process is left")


def test_a_second_sigterm_ends_an_agent_at_once(site: Site) -> None:
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
def test_a_nursery_survives_the_signals_of_schedulers_and_tells_its_agent(site: Site, number: signal.Signals) -> None:
    site.start(grace_s=60)
    worker = site.started(SLEEPS)
    os.kill(site.nursery, number)
    site.watched.until("notice")
    assert alive({site.agent.pid, site.nursery, worker}) == {site.agent.pid, site.nursery, worker}
    assert not site.watched.all("exited")


def test_without_a_manager_the_agent_itself_asks_its_workers_to_save(site: Site) -> None:
    site.start(grace_s=60)
    site.started(SAVES, "0.1")
    site.hub.abandon()
    time.sleep(0.2)
    site.agent.terminate()
    assert site.agent.wait(20) == 0


# -- how ends are told


def test_what_a_worker_says_last_is_heard_before_its_end(site: Site) -> None:
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
    site: Site, ends_with: int, code: int | None, file: str, finished: str
) -> None:
    site.start()
    over = site.folder / "over"
    script = f"import sys, pathlib\nif {file!r}: pathlib.Path({str(over)!r}).touch()\nsys.exit({ends_with})"
    site.spawn(script, finish_code=code, finish_file=str(over))
    exit_ = site.watched.until("exited")[2]
    assert (exit_.code, exit_.finished) == (ends_with, finished == "finished")


def test_the_end_of_a_worker_is_told_to_managers_until_one_has_it_forgotten(site: Site) -> None:
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


def test_the_end_of_a_worker_that_no_manager_saw_is_told_and_a_refused_one_never_again(site: Site) -> None:
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


def test_an_end_is_forgotten_when_another_worker_starts_on_its_slot(site: Site) -> None:
    site.start()
    site.spawn(SPEAKS)
    site.watched.until("exited")
    site.started(SLEEPS)
    lives = site.ordered
    site.manager().until("registered")
    assert [one[1].worker for one in site.watched.all("left")] == [lives]


def test_a_dropped_task_leaves_no_end_behind(site: Site) -> None:
    site.start()
    site.started(SLEEPS)
    site.hub.ask(lambda: (site.hub.kill_task(site.watched, "t"), site.hub.forget("t")))
    site.watched.until("exited")
    site.manager().until("registered")
    assert not site.watched.all("left")


def test_a_worker_that_is_stopped_before_the_nursery_is_there_never_starts(site: Site) -> None:
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


# -- managers that come and go


def test_an_older_manager_is_refused_and_a_newer_one_is_obeyed(site: Site) -> None:
    site.manager(2)
    site.start()
    worker = site.started(SLEEPS)
    older = site.manager(1, takes=False)  # it would end what it does not know
    time.sleep(1.5)
    assert older.heard == []
    assert alive([worker])
    newer = site.manager(3)
    assert newer.until("left")[1].worker == "t/n1/0/2-1"
    newer.until("up")
    assert alive([worker])


def test_orders_before_a_welcome_are_not_carried_out(tmp_path: Path) -> None:
    make_secret(tmp_path / "secret")
    with socket.create_server(("127.0.0.1", 0)) as door:
        hub: Any = type("Place", (), {"address": door.getsockname()[:2]})
        agents = LocalAgents(hub, tmp_path / "secret", preload=(), tmp=tmp_path)
        agents.start("n1")
        door.settimeout(PATIENCE_S)
        with door.accept()[0] as connection:
            connection.settimeout(PATIENCE_S)
            sealed = Sealed(read_secret(tmp_path / "secret"), "manager")
            connection.sendall(sealed.greeting)
            while not list(sealed.feed(connection.recv(65536))):
                pass
            connection.sendall(sealed.seal({"do": "bye"}))
            while connection.recv(65536):
                pass
        with door.accept()[0]:  # it comes again
            assert agents.running["n1"].poll() is None
        agents.close()


# -- stacks


def test_a_worker_shows_its_stacks_and_the_state_of_its_process(site: Site) -> None:
    site.start()
    pid = site.started(SLEEPS)
    site.hub.ask(lambda: site.hub.inspect(site.ordered))
    assert site.watched.until("inspected")[2] in {"S", "R"}
    log = site.folder / "0.log"
    until(lambda: "script0.py" in log.read_text(), "the stack is in the log")
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state_of(pid) == "T", "it is stopped")  # a process on another core goes on for a moment
    site.hub.ask(lambda: site.hub.inspect(site.ordered))
    assert site.watched.until("inspected", 2)[2] == "T"
    assert alive([pid])


def test_a_command_that_is_no_python_survives_being_inspected(site: Site) -> None:
    site.start()
    worker = site.spawn("", warm=False, argv=[sys.executable, "-c", SLEEPS])
    until((site.folder / "started").exists, "it is there")
    site.hub.ask(lambda: site.hub.inspect(worker))
    assert site.watched.until("inspected")[2] in {"S", "R"}
    assert alive(children(site.nursery))


# -- processes that are stopped or killed


def test_a_stopped_nursery_is_replaced_when_it_is_needed(site: Site) -> None:
    site.start()
    worker = site.started(SLEEPS)
    os.kill(site.nursery, signal.SIGSTOP)
    time.sleep(4)
    assert alive([worker]), "as long as nothing is asked of it, nothing happens to it"
    site.hub.call(lambda: site.hub.stop("t/n1/0/1-1", 0.0))
    assert site.watched.until("exited")[2].code == -9
    assert not alive([worker, site.nursery])
    site.spawn(SPEAKS)
    assert site.watched.until("exited", 2)[2].finished
    site.nursery = children(site.agent.pid)[0]


def test_a_worker_that_ended_before_its_nursery_was_killed_ended_as_it_did(site: Site) -> None:
    site.start()
    worker = site.started(SAVES, "0")
    os.kill(site.nursery, signal.SIGSTOP)
    os.kill(worker, signal.SIGTERM)
    until(lambda: not alive([worker]), "it ended")
    os.kill(site.nursery, signal.SIGKILL)
    assert site.watched.until("exited")[2].code == 0
    until(lambda: children(site.agent.pid), "another nursery")
    site.nursery = children(site.agent.pid)[0]


def test_a_stopped_nursery_leaves_nothing_behind_when_its_agent_is_killed(site: Site) -> None:
    site.start()
    site.started(SLEEPS)
    pids = tree(site)
    os.kill(site.nursery, signal.SIGSTOP)
    site.agent.kill()
    site.agent.wait(10)
    until(lambda: not alive(pids), "nobody is left")
    until(lambda: not list(site.folder.glob("bftrain-agent-*")), "and no folder")
    assert site.watched.until("exited")[2].code == -9


def test_the_workers_of_a_stopped_agent_end_before_its_manager_gives_it_up(site: Site) -> None:
    site.start()
    worker = site.started(SLEEPS)
    site.agent.send_signal(signal.SIGSTOP)
    until(lambda: not alive([worker]), "its nursery ends them", 15)
    assert not site.watched.all("down"), "so they cannot run here and elsewhere"
    site.agent.send_signal(signal.SIGCONT)
    assert site.watched.until("exited")[2].code == -9
    until(lambda: children(site.agent.pid), "another nursery")
    site.nursery = children(site.agent.pid)[0]


@pytest.mark.parametrize(("script", "stopped"), [(SAVES, True), (WAITS_FOR_SIGNAL, True), (SLEEPS, False)])
def test_only_a_worker_that_survives_sigterm_can_have_ended_well_because_it_was_told_to(
    site: Site, script: str, *, stopped: bool
) -> None:
    site.start()
    site.started(script, "0")
    site.hub.call(lambda: site.hub.stop(site.ordered, 15.0))
    end = site.watched.until("exited")[2]
    assert (end.code, end.stopped) == ((0, True) if stopped else (-signal.SIGTERM, False))


def test_a_script_ends_when_its_threads_have(site: Site) -> None:
    site.start()
    site.spawn(THREADED)
    assert site.watched.until("exited")[2].code == 0
    assert (site.folder / "thread").exists()
    assert (site.folder / "pool").exists()


def wrapped(site: Site, save_s: float) -> int:
    """Start a shell that runs a program that saves, and return the process of the program."""
    (site.folder / "saves.py").write_text(SAVES.replace("sys.exit(0)", "Path('saved').touch(); sys.exit(0)"))
    run = site.folder / "run.sh"
    run.write_text(f"{sys.executable} saves.py {save_s}\necho over\n")
    site.spawn("", warm=False, argv=["sh", str(run)])
    until((site.folder / "started").exists, "the program is there")
    (shell,) = children(site.nursery)
    (program,) = children(shell)
    return program


@pytest.mark.parametrize("from_outside", [False, True])
def test_a_program_in_a_shell_script_has_its_time_to_save(site: Site, *, from_outside: bool) -> None:
    site.start(grace_s=20.0)
    program = wrapped(site, 1.5)
    if from_outside:  # as a scheduler does it, the shell first
        for pid in (*children(site.nursery), program, site.nursery, site.agent.pid):
            os.kill(pid, signal.SIGTERM)
        site.watched.until("noticed")
    site.hub.call(lambda: site.hub.stop(site.ordered, 15.0))
    assert site.watched.until("exited")[2].code == -signal.SIGTERM
    assert (site.folder / "saved").exists()
    assert not alive([program])


def test_a_program_in_a_shell_script_has_no_more_time_than_it_is_given(site: Site) -> None:
    site.start()
    program = wrapped(site, 60.0)
    site.hub.call(lambda: site.hub.stop(site.ordered, 1.0))
    assert site.watched.until("exited")[2].code == -signal.SIGTERM
    assert not alive([program])
    assert not (site.folder / "saved").exists()


def test_what_a_shell_leaves_behind_that_somebody_kills_does_not_live_on(site: Site) -> None:
    site.start()
    program = wrapped(site, 60.0)
    os.kill(children(site.nursery)[0], signal.SIGTERM)
    assert site.watched.until("exited")[2].code == -signal.SIGTERM
    assert not alive([program])


def test_an_order_that_is_repeated_after_the_end_of_its_worker_is_not_carried_out_again(site: Site) -> None:
    argv = [sys.executable, "-c", "open('runs', 'a').write('x')"]
    site.start()
    site.spawn("", warm=False, argv=argv)
    site.watched.until("exited")
    order = {
        "do": "spawn", "worker": site.ordered, "task": "t", "argv": argv, "env": {},
        "cwd": str(site.folder), "log": str(site.folder / "0.log"), "slot": 0, "warm": False,
    }  # fmt: skip
    site.hub.call(lambda: site.hub.spawn(site.watched, "n1", "t", order))
    time.sleep(0.5)
    site.spawn(SPEAKS, slot=1)
    site.watched.until("exited", 2)
    assert (site.folder / "runs").read_text() == "x"
