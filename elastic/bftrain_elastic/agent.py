"""The agent: a small process on each node that stands between its workers and the manager.

It starts at once (the nursery imports torch, not the agent), passes messages on, starts and stops workers, and when it
is told to go (SIGTERM) it tells the manager, kills everything it started and is gone. If it dies itself, its nursery
sees to that; if the manager is gone for long, so is the agent.
"""

from __future__ import annotations

import argparse
import os
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bftrain_elastic.errors import BadMessage, ElasticError
from bftrain_elastic.gpus import visible_gpus
from bftrain_elastic.messages import (
    LINE_LIMIT,
    PACKET_LIMIT,
    Lines,
    Message,
    decode,
    encode,
    environment_of,
    inner_of,
    text_of,
    whole_of,
)
from bftrain_elastic.nursery import PRELOADED
from bftrain_elastic.processes import adopt_orphans, die_with, end_family
from bftrain_elastic.sealed import Sealed
from bftrain_elastic.secret import read_secret
from bftrain_elastic.wires import Wire

_HEARTBEAT_S: Final = 1.0
_RETRY_S: Final = 0.5
_CONNECT_S: Final = 0.15  # nothing else happens meanwhile, and a SIGTERM has to be answered within 0.2 s
_TAIL_BYTES: Final = 2048


@dataclass
class Worker:
    """One worker as its agent knows it."""

    task: str
    log: Path
    log_start: int
    pid: int = 0
    wire: socket.socket | None = None
    kill_at: float = 0.0  # on the monotonic clock; 0: not to be killed
    stop_asked: bool = False


@dataclass(frozen=True)
class Settings:
    """What an agent is started with; ``patience_s`` is how long it goes on without its manager."""

    manager: tuple[str, int]
    secret: bytes
    node: str
    address: str = "127.0.0.1"
    slots: int = 0
    preload: tuple[str, ...] = PRELOADED
    patience_s: float = 30.0


class Agent:
    """The loop around manager, nursery and workers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._gpus = visible_gpus()
        self._selector = selectors.DefaultSelector()
        self._workers: dict[str, Worker] = {}
        self._home = Path(tempfile.mkdtemp(prefix="bftrain-"))
        self._path = str(self._home / "agent")
        self._manager: Wire | None = None
        self._sealed = Sealed(settings.secret, "agent")
        self._nursery: Wire | None = None
        self._nursery_pid: subprocess.Popen[bytes] | None = None
        self._lines = Lines(LINE_LIMIT)
        self._connect_at = 0.0
        self._beat_at = 0.0
        self._lost_at = time.monotonic()
        self._leaving = ""
        self._warm = False

    # -- life

    def run(self) -> int:
        """Serve until told to go; gives the exit code."""
        adopt_orphans()
        wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._told_to_go)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        self._selector.register(wake, selectors.EVENT_READ, lambda _: os.read(wake, 4096))
        try:
            self._open_door()
            self._start_nursery()
            while not self._leaving:
                self._connect()
                for key, events in self._selector.select(self._wait_s()):
                    key.data(events)
                self._on_time()
            self._say({"say": "leaving", "reason": self._leaving})
        finally:
            gone = end_family()
            shutil.rmtree(self._home, ignore_errors=True)
        return 0 if gone else 1

    def _told_to_go(self, number: int, _frame: object) -> None:
        self._leaving = signal.Signals(number).name

    def _wait_s(self) -> float:
        now = time.monotonic()
        times = [self._beat_at if self._manager else self._connect_at]
        times += [worker.kill_at for worker in self._workers.values() if worker.kill_at]
        return max(0.0, min(times) - now)

    def _on_time(self) -> None:
        now = time.monotonic()
        if self._sealed.greeted and self._manager and now >= self._beat_at:
            self._say({"say": "alive"})
        if self._manager and now >= self._beat_at:
            self._beat_at = now + _HEARTBEAT_S
        for worker in self._workers.values():
            if worker.kill_at and now >= worker.kill_at:
                worker.kill_at = 0.0
                self._signal(worker, signal.SIGKILL)
        if self._manager is None and now - self._lost_at > self._settings.patience_s:
            self._leaving = f"no manager for {self._settings.patience_s:g} s"

    # -- the manager

    def _connect(self) -> None:
        now = time.monotonic()
        if self._manager is not None or now < self._connect_at:
            return
        self._connect_at = now + _RETRY_S
        try:
            connection = socket.create_connection(self._settings.manager, timeout=_CONNECT_S)
        except OSError:
            return
        self._sealed = Sealed(self._settings.secret, "agent")
        self._manager = Wire(self._selector, connection, self._from_manager, self._manager_lost)
        self._manager.send(self._sealed.greeting)

    def _manager_lost(self, _reason: str) -> None:
        self._manager = None
        self._lost_at = time.monotonic()

    def _say(self, message: Message) -> None:
        """Tell the manager, if there is one: whoever comes after it asks what is going on."""
        if self._manager is not None and self._sealed.greeted:
            self._manager.send(self._sealed.seal(message))

    def _from_manager(self, data: bytes) -> None:
        new = not self._sealed.greeted
        try:
            for message in self._sealed.feed(data):
                self._do(message)
        except BadMessage as error:
            self._note(f"manager: {error}")
            if self._manager is not None:
                self._manager.end(str(error))
            return
        if new and self._sealed.greeted:
            self._register()

    def _register(self) -> None:
        slots = self._settings.slots or len(self._gpus) or 1
        alive = [{"worker": name, "task": worker.task} for name, worker in self._workers.items()]
        self._say(
            {
                "say": "register",
                "node": self._settings.node,
                "address": self._settings.address,
                "slots": slots,
                "pid": os.getpid(),
                "workers": alive,
            }
        )
        if self._warm:
            self._say({"say": "warm"})

    def _do(self, message: Message) -> None:
        match message.get("do"):
            case "spawn":
                self._spawn(message)
            case "tell":
                self._tell_worker(text_of(message, "worker"), inner_of(message, "message"))
            case "stop":
                self._stop(text_of(message, "worker"), float(message.get("grace_s", 0.0)))
            case "clear":
                for name in list(self._workers):
                    self._stop(name, 0.0)
            case "bye":
                self._leaving = "the manager said goodbye"
            case "welcome":
                pass
            case other:
                self._note(f"the manager said '{other}', which this version does not know")

    # -- workers

    def _spawn(self, message: Message) -> None:
        name, log = text_of(message, "worker"), Path(text_of(message, "log"))
        slot = whole_of(message, "slot")
        env = environment_of(message, "env") | {"BFTRAIN_SOCKET": self._path, "BFTRAIN_WORKER": name}
        env |= {"BFTRAIN_ADDRESS": self._settings.address, "BFTRAIN_NODE": self._settings.node}
        if self._gpus:
            env["CUDA_VISIBLE_DEVICES"] = self._gpus[slot % len(self._gpus)]
        try:
            log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            start = log.stat().st_size if log.exists() else 0
        except OSError as error:
            self._say({"say": "exited", "worker": name, "code": 1, "tail": f"no log can be written: {error}"})
            return
        self._workers[name] = Worker(task=text_of(message, "task"), log=log, log_start=start)
        port = self._free_port() if message.get("want_port") else 0
        if port:
            env["MASTER_PORT"] = str(port)
            message = message | {"argv": [word.replace("$MASTER_PORT", str(port)) for word in message["argv"]]}
        if self._nursery is None:
            self._start_nursery()
        if self._nursery is not None:
            self._nursery.send(encode(message | {"env": env}) + b"\n")
        self._say({"say": "spawned", "worker": name, "port": port})

    def _free_port(self) -> int:
        with socket.socket() as probe:
            probe.bind((self._settings.address, 0))
            port: int = probe.getsockname()[1]
            return port

    def _stop(self, name: str, grace_s: float) -> None:
        worker = self._workers.get(name)
        if worker is None:
            return
        worker.stop_asked = True
        if grace_s > 0:
            self._signal(worker, signal.SIGTERM)
            worker.kill_at = time.monotonic() + grace_s
        else:
            self._signal(worker, signal.SIGKILL)

    def _signal(self, worker: Worker, number: int) -> None:
        if worker.pid and self._nursery is not None:
            self._nursery.send(encode({"do": "signal", "pid": worker.pid, "signal": int(number)}) + b"\n")
        elif not worker.pid:  # not born yet: once it is
            worker.kill_at = time.monotonic() + 0.01

    def _tell_worker(self, name: str, message: Message) -> None:
        worker = self._workers.get(name)
        if worker is None or worker.wire is None:
            return
        try:
            worker.wire.send(encode(message, limit=PACKET_LIMIT), socket.MSG_DONTWAIT)
        except OSError as error:
            self._note(f"{name} does not listen: {error}")

    def _open_door(self) -> None:
        """Open the socket on which workers find us: in a folder of our own, which mkdtemp makes with mode 0700."""
        door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        door.settimeout(0)
        door.bind(self._path)
        door.listen(64)
        self._selector.register(door, selectors.EVENT_READ, lambda _: self._let_in(door))

    def _let_in(self, door: socket.socket) -> None:
        with suppress(BlockingIOError):
            guest, _ = door.accept()
            guest.settimeout(0)
            _, user, _ = struct.unpack("3i", guest.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if user != os.getuid():
                guest.close()
                return
            self._selector.register(guest, selectors.EVENT_READ, lambda _: self._from_worker(guest))

    def _from_worker(self, guest: socket.socket) -> None:
        try:
            packet = guest.recv(PACKET_LIMIT)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            packet = b""
        if not packet:
            self._selector.unregister(guest)
            guest.close()
            for worker in self._workers.values():
                if worker.wire is guest:
                    worker.wire = None
            return
        try:
            message = decode(packet)
            if message.get("say") == "hello":
                self._greet(guest, text_of(message, "worker"))
                return
        except BadMessage as error:
            self._note(f"a worker: {error}")
            return
        for name, worker in self._workers.items():
            if worker.wire is guest:
                self._say({"say": "said", "worker": name, "message": message})

    def _greet(self, guest: socket.socket, name: str) -> None:
        if name in self._workers:
            self._workers[name].wire = guest

    # -- the nursery

    def _start_nursery(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "bftrain_elastic.nursery", str(theirs.fileno()), str(os.getpid())]
            self._nursery_pid = subprocess.Popen(  # noqa: S603 - our own module, no shell
                [*command, *self._settings.preload],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._lines = Lines(LINE_LIMIT)
        self._nursery = Wire(self._selector, ours, self._from_nursery, self._nursery_lost)

    def _from_nursery(self, data: bytes) -> None:
        self._lines.feed(data)
        while (line := self._lines.next()) is not None:
            message = decode(line)
            match message["say"]:
                case "born":
                    self._workers[message["worker"]].pid = message["pid"]
                case "died":
                    self._bury(message["worker"], message["code"])
                case "warm":
                    self._warm = True
                    self._say({"say": "warm"})
                    for missing in message["missing"]:
                        self._note(f"not preloaded: {missing}")

    def _nursery_lost(self, _reason: str) -> None:
        """Bury all workers: they died with their parent, and what they left came to us."""
        self._nursery = None
        if self._nursery_pid is not None:
            self._nursery_pid.kill()
            self._nursery_pid.wait()
        end_family()
        for name in list(self._workers):
            self._bury(name, -int(signal.SIGKILL))
        if not self._leaving:
            self._start_nursery()

    def _bury(self, name: str, code: int) -> None:
        worker = self._workers.pop(name, None)
        if worker is not None:
            self._say({"say": "exited", "worker": name, "code": code, "tail": _tail(worker)})

    def _note(self, text: str) -> None:
        sys.stderr.write(f"bftrain agent {self._settings.node}: {text}\n")
        sys.stderr.flush()


def _tail(worker: Worker) -> str:
    """Give the last words of a worker."""
    try:
        with worker.log.open("rb") as log:
            log.seek(max(worker.log_start, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return log.read().decode(errors="replace")
    except OSError:
        return ""


def main(arguments: list[str] | None = None) -> int:
    """Run an agent from its command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bftrain_elastic.agent", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--manager", required=True, help="address:port of the manager")
    parser.add_argument("--secret", required=True, type=Path, help="file with the secret of this run, mode 0600")
    parser.add_argument("--node", default=socket.gethostname(), help="what this node is called")
    parser.add_argument(
        "--address", default="127.0.0.1", help="where other nodes reach this one; workers listen there only"
    )
    parser.add_argument("--slots", type=int, default=0, help="workers at once; 0: one a GPU, or one")
    parser.add_argument(
        "--preload", default=",".join(PRELOADED), help="modules that workers find imported; empty: none"
    )
    parser.add_argument("--patience", type=float, default=30.0, help="seconds to go on without the manager")
    parser.add_argument("--parent", type=int, default=0, help="end when this process, which started the agent, ends")
    given = parser.parse_args(arguments)
    host, _, port = given.manager.rpartition(":")
    if given.parent:
        die_with(given.parent, signal.SIGTERM)
    try:
        settings = Settings(
            manager=(host, int(port)),
            secret=read_secret(given.secret),
            node=given.node,
            address=given.address,
            slots=given.slots,
            preload=tuple(filter(None, given.preload.split(","))),
            patience_s=given.patience,
        )
    except (ElasticError, ValueError) as error:
        parser.error(str(error))
    return Agent(settings).run()


if __name__ == "__main__":
    sys.exit(main())
