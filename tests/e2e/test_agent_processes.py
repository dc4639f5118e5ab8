"""A real agent and small workers without torch: managers that come and go, and processes that are stopped or killed."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bftrain_elastic.wire.agent_messages import ExpectScripts
from bftrain_elastic.wire.authenticated_stream import AuthenticatedStream, make_secret, read_secret
from tests.helpers.one_node import PATIENCE_S, SAVES, SLEEPS, SPEAKS, THREADED, WAITS_FOR_SIGNAL, OneNode, tree, until
from tests.helpers.processes import LocalAgents, alive, children, state_of


def test_an_older_manager_is_refused_and_a_newer_one_is_obeyed(
    one_node: OneNode, capfd: pytest.CaptureFixture[str]
) -> None:
    one_node.manager(2)
    one_node.start()
    worker = one_node.started(SLEEPS)
    older = one_node.manager(1, takes=False)  # it would end what it does not know
    until(lambda: "has obeyed a manager of epoch 2" in capfd.readouterr().err, "the agent refuses it")
    assert older.heard == []
    assert alive([worker])
    newer = one_node.manager(3)
    assert newer.until("left")[1].worker == "t/n1/0/2-1"
    newer.until("up")
    assert alive([worker])


# Stands for torch: writes which process imports it, which takes until the file ``wait`` is gone
SLOW = """
import os, time
from pathlib import Path
folder = Path(__file__).parent
with (folder / "imports").open("a") as file:
    file.write(f"{os.getpid()}\\n")
while (folder / "wait").exists():
    time.sleep(0.01)
"""


@pytest.fixture
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a module ``slow``; return the file that has a line for each time it was imported."""
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "wait").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path / "imports"


def test_a_command_starts_while_modules_are_imported_for_scripts(one_node: OneNode, imports: Path) -> None:
    one_node.start(preload=("slow",))
    one_node.hub.call(lambda: one_node.hub.send_all(ExpectScripts()))
    until(imports.exists, "the import has begun")
    one_node.spawn("", warm=False, argv=["true"])
    assert one_node.watched.until("exited")[2].code == 0
    assert not one_node.watched.all("warm")
    one_node.spawn(SPEAKS, slot=1)
    (one_node.folder / "wait").unlink()
    assert one_node.watched.until("exited", 2)[2].finished
    assert len(imports.read_text().splitlines()) == 1


def test_a_killed_prefork_server_takes_no_workers_of_the_other_along(one_node: OneNode, imports: Path) -> None:
    (one_node.folder / "wait").unlink()
    one_node.start(preload=("slow",))
    script = one_node.started(SLEEPS)
    one_node.spawn("", warm=False, argv=["sleep", "600"], slot=1)
    until(lambda: children(one_node.prefork), "the command runs")
    os.kill(one_node.prefork, signal.SIGKILL)
    assert one_node.watched.until("exited")[2].code == -9
    assert alive([script])
    await_another_prefork_server(one_node)
    os.kill(next(pid for pid in children(one_node.agent.pid) if script in children(pid)), signal.SIGKILL)
    assert one_node.watched.until("exited", 2)[2].code == -9
    until(lambda: len(imports.read_text().splitlines()) == 2, "another one imports")


def test_orders_before_a_welcome_are_not_carried_out(tmp_path: Path) -> None:
    make_secret(tmp_path / "secret")
    with socket.create_server(("127.0.0.1", 0)) as door:
        hub: Any = type("Place", (), {"address": door.getsockname()[:2]})
        agents = LocalAgents(hub, tmp_path / "secret", "--preload", "")
        agents.start("n1")
        door.settimeout(PATIENCE_S)
        with door.accept()[0] as connection:
            connection.settimeout(PATIENCE_S)
            sealed = AuthenticatedStream(read_secret(tmp_path / "secret"), "manager")
            connection.sendall(sealed.greeting)
            while not list(sealed.feed(connection.recv(65536))):
                pass
            connection.sendall(sealed.seal({"type": "bye"}))
            while connection.recv(65536):
                pass
        with door.accept()[0]:  # it comes again
            assert agents.running["n1"].poll() is None
        agents.close()


def test_a_worker_shows_its_stacks_and_the_state_of_its_process(one_node: OneNode) -> None:
    one_node.start()
    pid = one_node.started(SLEEPS)
    one_node.hub.ask(lambda: one_node.hub.workers.inspect(one_node.ordered))
    assert one_node.watched.until("inspected")[2] in {"S", "R"}
    log = one_node.folder / "0.log"
    until(lambda: "script0.py" in log.read_text(), "the stack is in the log")
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state_of(pid) == "T", "it is stopped")  # a process on another core goes on for a moment
    one_node.hub.ask(lambda: one_node.hub.workers.inspect(one_node.ordered))
    assert one_node.watched.until("inspected", 2)[2] == "T"
    assert alive([pid])


def test_a_stopped_prefork_server_is_replaced_when_it_is_needed(one_node: OneNode) -> None:
    one_node.start()
    worker = one_node.started(SLEEPS)
    os.kill(one_node.prefork, signal.SIGSTOP)
    time.sleep(4)
    assert alive([worker]), "as long as nothing is asked of it, nothing happens to it"
    one_node.hub.call(lambda: one_node.hub.workers.stop("t/n1/0/1-1", 0.0))
    assert one_node.watched.until("exited")[2].code == -9
    assert not alive([worker, one_node.prefork])
    one_node.spawn(SPEAKS)
    assert one_node.watched.until("exited", 2)[2].finished
    one_node.prefork = children(one_node.agent.pid)[0]


def await_another_prefork_server(one_node: OneNode) -> None:
    """Wait for the server after the one that ended, which may still be there and would start no worker that lives."""
    ended = one_node.prefork
    until(lambda: set(children(one_node.agent.pid)) - {ended}, "another prefork server")
    one_node.prefork = (set(children(one_node.agent.pid)) - {ended}).pop()


def test_a_stopped_prefork_server_leaves_nothing_behind_when_its_agent_is_killed(one_node: OneNode) -> None:
    one_node.start()
    one_node.started(SLEEPS)
    pids = tree(one_node)
    os.kill(one_node.prefork, signal.SIGSTOP)
    one_node.agent.kill()
    one_node.agent.wait(10)
    until(lambda: not alive(pids), "no process is left")
    assert one_node.watched.until("exited")[2].code == -9


def test_the_workers_of_a_stopped_agent_end_before_its_manager_gives_it_up(one_node: OneNode) -> None:
    one_node.start()
    worker = one_node.started(SLEEPS)
    one_node.agent.send_signal(signal.SIGSTOP)
    until(lambda: not alive([worker]), "its prefork server ends them", 15)
    assert not one_node.watched.all("down"), "so they cannot run here and elsewhere"
    one_node.agent.send_signal(signal.SIGCONT)
    assert one_node.watched.until("exited")[2].code == -9
    await_another_prefork_server(one_node)


@pytest.mark.parametrize(("script", "stopped"), [(SAVES, True), (WAITS_FOR_SIGNAL, True), (SLEEPS, False)])
def test_only_a_worker_that_survives_sigterm_can_have_ended_well_because_it_was_asked_to(
    one_node: OneNode, script: str, *, stopped: bool
) -> None:
    one_node.start()
    one_node.started(script, "0")
    one_node.hub.call(lambda: one_node.hub.workers.stop(one_node.ordered, 15.0))
    end = one_node.watched.until("exited")[2]
    assert (end.code, end.stopped) == ((0, True) if stopped else (-signal.SIGTERM, False))


def test_a_script_ends_when_its_threads_have(one_node: OneNode) -> None:
    one_node.start()
    one_node.spawn(THREADED)
    assert one_node.watched.until("exited")[2].code == 0
    assert (one_node.folder / "thread").exists()
    assert (one_node.folder / "pool").exists()


def wrapped(one_node: OneNode, save_s: float) -> int:
    """Start a shell that runs a program that saves, and return the process of the program."""
    (one_node.folder / "saves.py").write_text(SAVES.replace("sys.exit(0)", "Path('saved').touch(); sys.exit(0)"))
    run = one_node.folder / "run.sh"
    run.write_text(f"{sys.executable} saves.py {save_s}\necho over\n")
    one_node.spawn("", warm=False, argv=["sh", str(run)])
    until((one_node.folder / "started").exists, "the program is there")
    (shell,) = children(one_node.prefork)
    (program,) = children(shell)
    return program


@pytest.mark.parametrize("from_outside", [False, True])
def test_a_program_in_a_shell_script_has_its_time_to_save(one_node: OneNode, *, from_outside: bool) -> None:
    one_node.start(grace_s=20.0)
    program = wrapped(one_node, 3.5)  # longer than an unexpected exit waits for the rest of its group
    if from_outside:  # as a scheduler does it, the shell first
        for pid in (*children(one_node.prefork), program, one_node.prefork, one_node.agent.pid):
            os.kill(pid, signal.SIGTERM)
        one_node.watched.until("noticed")
    one_node.hub.call(lambda: one_node.hub.workers.stop(one_node.ordered, 15.0))
    assert one_node.watched.until("exited")[2].code == -signal.SIGTERM
    assert (one_node.folder / "saved").exists()
    until(lambda: not alive([program]), "the program is gone")


def test_a_program_in_a_shell_script_has_no_more_time_than_it_is_given(one_node: OneNode) -> None:
    one_node.start()
    program = wrapped(one_node, 60.0)
    one_node.hub.call(lambda: one_node.hub.workers.stop(one_node.ordered, 1.0))
    assert one_node.watched.until("exited")[2].code == -signal.SIGTERM
    until(lambda: not alive([program]), "the program is gone")
    assert not (one_node.folder / "saved").exists()


PRINTS = f"""
print("began", flush=True)
{SLEEPS}
    print("goes on", flush=True)
"""


def test_a_log_that_becomes_too_long_is_cut_while_its_worker_writes(one_node: OneNode) -> None:
    log = one_node.folder / "0.log"
    log.write_bytes(b"of an earlier worker\n")
    os.truncate(log, 65_000_000)  # more than an agent keeps if nothing is said; the disk holds little of it
    one_node.start()
    one_node.started(PRINTS)
    until(lambda: log.stat().st_size < 64_000_000, "it is cut")
    size = log.stat().st_size
    until(lambda: log.stat().st_size > size + 100, "the worker goes on")
    found = log.read_bytes()
    assert found.startswith(b"of an earlier worker\n")
    assert found.count(b"lines are left out here") == found.count(b"began") == 1
    assert found.endswith(b"goes on\n")


# Cannot be imported, as with a broken library: the agent tries ever more slowly
BROKEN = """
import os
with open(__file__ + ".starts", "a") as file:
    file.write("started\\n")
os._exit(2)
"""


def test_an_agent_waits_longer_each_time_before_it_starts_another(
    one_node: OneNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    one_node.start(preload=("broken",))
    one_node.hub.call(lambda: one_node.hub.send_all(ExpectScripts()))
    starts = tmp_path / "broken.py.starts"
    until(lambda: starts.exists() and len(starts.read_text().split()) >= 3, "a third prefork server")
    began = time.monotonic()
    time.sleep(3.0)
    passed_s = time.monotonic() - began
    # 0.2, 0.4, 0.8, 1.6, ... s apart, looked at once a second: fewer than one a second
    assert len(starts.read_text().split()) - 3 <= passed_s
    assert "its prefork server exited during its start; a new one starts soon" in capfd.readouterr().err
    one_node.spawn("", warm=False, argv=["true"])
    assert one_node.watched.until("exited")[2].code == 0, "commands do not need it"
