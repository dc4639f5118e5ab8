"""The agent: a small process on each node that stands between its workers and the manager.

It starts at once (the nursery imports torch, not the agent), passes messages on, starts and stops workers, and when it
is told to go (SIGTERM) it tells the manager, kills everything it started and is gone. If it dies itself, its nursery
sees to that; if the manager is gone for long, so is the agent. Until then workers go on without one, and the agent
remembers of each what the next manager has to know.
"""

from __future__ import annotations

import argparse
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bftrain_elastic.door import Door
from bftrain_elastic.errors import BadMessage, ElasticError
from bftrain_elastic.gpus import visible_gpus
from bftrain_elastic.interfaces import networking, towards
from bftrain_elastic.link import Link
from bftrain_elastic.messages import (
    LINE_LIMIT,
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
from bftrain_elastic.secret import read_secret
from bftrain_elastic.wires import Wire
from bftrain_elastic.words import checked

_TAIL_BYTES: Final = 2048
AUTO: Final = "auto"  # instead of an address
_NO_STEP: Final = -1


@dataclass
class Worker:
    """One worker as its agent knows it."""

    name: str
    task: str
    slot: int
    log: Path
    log_start: int
    port: int = 0
    pid: int = 0
    kill_at: float = 0.0  # on the monotonic clock; 0: not to be killed
    # What a manager has to know that did not see it happen
    step: int = _NO_STEP  # the last one it spoke of
    go: Message | None = None  # the last group it was told to form
    ready: Message | None = None  # what it said when it was ready, unless it was told to form a group since
    done: bool = False  # its training is over
    odd: bool = False  # it said what cannot be

    def told(self, message: Message) -> None:
        """Remember what it was told."""
        if message.get("do") == "go":
            self.go, self.ready = message, None

    def said(self, words: Message) -> None:
        """Remember what it said."""
        self.step = words.get("step", self.step)
        if words["say"] == "ready":
            self.ready = words
        elif words["say"] == "done":
            self.done = True

    def left(self) -> Message:
        """Say all this to a new manager."""
        go = self.go and {name: self.go[name] for name in ("generation", "rank", "workers")}
        known = {"worker": self.name, "task": self.task, "slot": self.slot, "step": self.step}
        return {**known, "go": go, "ready": self.ready, "done": self.done}


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
        self._networking = networking(settings.address)
        self._selector = selectors.DefaultSelector()
        self._workers: dict[str, Worker] = {}
        self._link = Link(
            self._selector,
            settings.manager,
            settings.secret,
            on_message=self._do,
            on_greeted=self._register,
            note=self._note,
        )
        self._door = Door(
            self._selector, known=self._workers.__contains__, on_message=self._heard_worker, note=self._note
        )
        self._nursery: Wire | None = None
        self._nursery_process: subprocess.Popen[bytes] | None = None
        self._lines = Lines(LINE_LIMIT)
        self._leaving = ""
        self._in_vain = False
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
            self._start_nursery()
            while not self._leaving:
                self._link.on_time()
                for key, events in self._selector.select(self._wait_s()):
                    key.data(events)
                self._on_time()
            self._link.say({"say": "leaving", "reason": self._leaving})
        finally:
            gone = end_family()
            self._door.close()
        return 0 if gone and not self._in_vain else 1

    def _told_to_go(self, number: int, _frame: object) -> None:
        self._leaving = signal.Signals(number).name

    def _wait_s(self) -> float:
        times = [self._link.next_at, *(worker.kill_at for worker in self._workers.values() if worker.kill_at)]
        return max(0.0, min(times) - time.monotonic())

    def _on_time(self) -> None:
        now = time.monotonic()
        for worker in self._workers.values():
            if worker.kill_at and now >= worker.kill_at:
                worker.kill_at = 0.0
                self._signal(worker, signal.SIGKILL)
        if self._link.alone_s > self._settings.patience_s:
            self._leaving = f"no manager for {self._settings.patience_s:g} s"
            self._note(f"{self._leaving}: {self._link.trouble}")
            self._in_vain = True

    # -- the manager

    def _register(self) -> None:
        self._link.say(
            {
                "say": "register",
                "node": self._settings.node,
                "address": self._settings.address,
                "slots": self._settings.slots or len(self._gpus) or 1,
                "pid": os.getpid(),
                "workers": [worker.left() for worker in self._workers.values()],
            }
        )
        if self._warm:
            self._link.say({"say": "warm"})

    def _do(self, message: Message) -> None:
        match message.get("do"):
            case "spawn":
                self._spawn(message)
            case "tell":
                name, words = text_of(message, "worker"), inner_of(message, "message")
                if name in self._workers:
                    self._workers[name].told(words)
                    self._door.tell(name, words)
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

    def _heard_worker(self, name: str, message: Message) -> None:
        worker = self._workers.get(name)
        if worker is None:
            return
        try:
            words = checked(message)
        except BadMessage as error:
            if not worker.odd:  # once is enough
                worker.odd = True
                self._link.say({"say": "odd", "worker": name, "text": error.what})
            return
        if words is not None:
            worker.said(words)
            self._link.say({"say": "said", "worker": name, "message": words})

    def _spawn(self, message: Message) -> None:
        name, log = text_of(message, "worker"), Path(text_of(message, "log"))
        slot = whole_of(message, "slot")
        env = environment_of(message, "env") | {"BFTRAIN_SOCKET": self._door.path, "BFTRAIN_WORKER": name}
        env |= {"BFTRAIN_ADDRESS": self._settings.address, "BFTRAIN_NODE": self._settings.node}
        env = {name: value for name, value in self._networking.items() if name not in os.environ} | env
        if self._gpus and not message.get("all_gpus"):
            env["CUDA_VISIBLE_DEVICES"] = self._gpus[slot % len(self._gpus)]
        try:
            log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            start = log.stat().st_size if log.exists() else 0
        except OSError as error:
            self._link.say({"say": "exited", "worker": name, "code": 1, "tail": f"no log can be written: {error}"})
            return
        port = self._free_port() if message.get("want_port") else 0
        self._workers[name] = Worker(name, text_of(message, "task"), slot, log, start, port)
        if port:
            env["MASTER_PORT"] = str(port)
            message = message | {"argv": [word.replace("$MASTER_PORT", str(port)) for word in message["argv"]]}
        if self._nursery is None:
            self._start_nursery()
        if self._nursery is not None:
            self._nursery.send(encode(message | {"env": env}) + b"\n")

    def _free_port(self) -> int:
        with socket.socket() as probe:
            probe.bind((self._settings.address, 0))
            port: int = probe.getsockname()[1]
            return port

    def _stop(self, name: str, grace_s: float) -> None:
        worker = self._workers.get(name)
        if worker is None:
            return
        if grace_s > 0 and worker.pid:  # who is not born yet has nothing to put in order
            self._signal(worker, signal.SIGTERM)
            worker.kill_at = time.monotonic() + grace_s
        else:
            self._signal(worker, signal.SIGKILL)

    def _signal(self, worker: Worker, number: int) -> None:
        if worker.pid and self._nursery is not None:
            self._nursery.send(encode({"do": "signal", "pid": worker.pid, "signal": int(number)}) + b"\n")
        elif not worker.pid:  # not born yet: once it is
            worker.kill_at = time.monotonic() + 0.01

    # -- the nursery

    def _start_nursery(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            places = [str(theirs.fileno()), str(os.getpid()), str(self._door.home)]
            self._nursery_process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                [sys.executable, "-m", "bftrain_elastic.nursery", *places, *self._settings.preload],
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
                    worker = self._workers[message["worker"]]
                    worker.pid = message["pid"]
                    self._link.say({"say": "spawned", "worker": worker.name, "pid": worker.pid, "port": worker.port})
                case "died":
                    self._bury(message["worker"], message["code"])
                case "warm":
                    self._warm = True
                    self._link.say({"say": "warm"})
                    for missing in message["missing"]:
                        self._note(f"not preloaded: {missing}")

    def _nursery_lost(self, _reason: str) -> None:
        """Bury all workers: they died with their parent, and what they left came to us."""
        self._nursery, self._warm = None, False
        if self._nursery_process is not None:
            self._nursery_process.kill()
            self._nursery_process.wait()
        end_family()
        for name in list(self._workers):
            self._bury(name, -int(signal.SIGKILL))
        if not self._leaving:
            self._start_nursery()

    def _bury(self, name: str, code: int) -> None:
        worker = self._workers.pop(name, None)
        if worker is not None:
            self._link.say({"say": "exited", "worker": name, "code": code, "tail": _tail(worker)})

    def _note(self, text: str) -> None:
        sys.stderr.write(f"bftrain agent {self._settings.node}: {text}\n")


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
        "--address",
        default="127.0.0.1",
        help="where other nodes reach this one; workers listen there only; auto: whence it reaches the manager",
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
            address=towards(host) if given.address == AUTO else given.address,
            slots=given.slots,
            preload=tuple(filter(None, given.preload.split(","))),
            patience_s=given.patience,
        )
        agent = Agent(settings)
    except (ElasticError, ValueError) as error:
        parser.error(str(error))
    return agent.run()


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # the node is waited for: an interpreter that tidies up takes longer than all the rest
