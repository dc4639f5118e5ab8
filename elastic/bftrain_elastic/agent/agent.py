"""The agent: a small process on each node that stands between its workers and the manager.

It starts at once (the nursery imports torch, not the agent), passes messages on, and starts and stops workers. On
SIGTERM it says goodbye to the manager, kills everything it started and ends; with a grace it gives notice first, and
ends when no worker is left or the grace is over. If the agent dies, its nursery kills the workers; if the manager is
gone for long, the agent ends. Until then workers go on, and the agent keeps what the next manager must know of them.
"""

from __future__ import annotations

import math
import os
import selectors
import shutil
import signal
import socket
import sys
import time
from typing import Final

from bftrain_elastic.agent.agent_settings import AgentSettings, command_line
from bftrain_elastic.agent.gpus import visible_gpus
from bftrain_elastic.agent.manager_link import ManagerLink
from bftrain_elastic.agent.prefork_process import PreforkProcess
from bftrain_elastic.agent.prefork_server import NOTICES
from bftrain_elastic.agent.process_tree import adopt_orphans, die_with, end_family, is_running, state_of
from bftrain_elastic.agent.worker_records import EndedWorkers, WorkerRecord
from bftrain_elastic.agent.worker_socket import WorkerSocket
from bftrain_elastic.errors import BadMessage, ElasticError
from bftrain_elastic.wire.messages import Message, environment_of, inner_of, text_of
from bftrain_elastic.wire.network_interfaces import networking
from bftrain_elastic.wire.worker_messages import checked
from bftrain_elastic.worker.termination import GRACE

_KILLED: Final = -int(signal.SIGKILL)
_BEAT_S: Final = 1.0  # how often the nursery hears that we live
_OBEY_S: Final = 3.0  # how long a nursery that was stopped may take to carry out an order
_ONE_NOTICE_S: Final = 1.0  # in which a scheduler may send SIGTERM twice: itself, and by its own step (srun)
_REAP_S: Final = 0.02  # how long the manager waits to hear how the last workers ended


class NodeAgent:
    """The loop around manager, nursery and workers."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._gpus = visible_gpus()
        self._networking = networking(settings.address)
        self._selector = selectors.DefaultSelector()
        self._workers: dict[str, WorkerRecord] = {}
        self._ended = EndedWorkers()
        self._link = ManagerLink(
            self._selector,
            settings.manager,
            settings.secret,
            on_message=self._do,
            on_greeted=self._register,
            note=self._note,
        )
        self._door = WorkerSocket(
            self._selector, known=self._workers.__contains__, on_message=self._heard_worker, note=self._note
        )
        self._nursery = PreforkProcess(
            self._selector,
            door=self._door.home,
            preload=settings.preload,
            on_message=self._from_nursery,
            on_lost=self._nursery_lost,
        )
        self._signals: list[int] = []  # that arrived and were not looked at yet
        self._terminated_at = math.inf  # on the monotonic clock: when the first SIGTERM came
        self._workers_know = False  # that the node goes: the scheduler has sent them SIGTERM, or we have
        self._leaving = ""
        self._leave_at = 0.0  # on the monotonic clock: the end of the grace; 0: no SIGTERM came
        self._leave_why = ""
        self._ask_at = 0.0  # on the monotonic clock: when workers are asked to save if no manager does it
        self._beat_at = 0.0
        self._in_vain = False

    # -- life

    def run(self) -> int:
        """Serve until the end is ordered; returns the exit code."""
        adopt_orphans()
        wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        self._selector.register(wake, selectors.EVENT_READ, lambda _: os.read(wake, 4096))
        for number in (signal.SIGINT, *NOTICES):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _: self._signals.append(number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, NOTICES)
        try:
            self._nursery.start()
            while not self._leaving:
                self._link.on_time()
                for key, events in self._selector.select(self._wait_s()):
                    key.data(events)
                self._on_time()
            self._say_goodbye()
        finally:
            gone = end_family()
            self._door.close()
            if self._settings.remove is not None and self._orphaned():
                shutil.rmtree(self._settings.remove, ignore_errors=True)
        return 0 if gone and not self._in_vain else 1

    def _wait_s(self) -> float:
        times = [self._link.next_at, self._beat_at, *(one.kill_at for one in self._workers.values() if one.kill_at)]
        return max(0.0, min([*times, self._leave_at] if self._leave_at else times) - time.monotonic())

    def _on_time(self) -> None:
        while self._signals:
            self._on_signal(self._signals.pop(0))
        now = time.monotonic()
        for worker in self._workers.values():
            if worker.kill_at and now >= worker.kill_at:
                self._kill(worker)
        if now >= self._beat_at:
            self._beat_at = now + _BEAT_S
            self._nursery.start()
            self._nursery.send({"type": "alive"})
            self._door.let_in()
            self._look_after_nursery(now)
        if self._link.alone_s > self._settings.patience_s:
            self._leaving = f"no manager for {self._settings.patience_s:g} s"
            self._note(f"{self._leaving}: {self._link.trouble}")
            self._in_vain = True
        if self._leave_at and now >= self._ask_at and not self._link.welcomed:
            self._ask_workers_to_save()
        if self._leave_at and (not self._workers or now >= self._leave_at):
            self._leaving = self._leave_why

    # -- signals of the scheduler

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        now = time.monotonic()
        again = number == signal.SIGTERM and now - self._terminated_at > _ONE_NOTICE_S
        if number == signal.SIGINT or self._orphaned() or again:
            self._leaving = name
        else:
            if number == signal.SIGTERM:
                self._terminated_at = min(now, self._terminated_at)
            self._take_notice(name)

    def _orphaned(self) -> bool:
        return self._settings.parent > 0 and os.getppid() != self._settings.parent

    def _take_notice(self, why: str) -> None:
        """Leave, or let manager and workers know that they have so much time to put things in order."""
        if self._settings.grace_s <= 0:
            self._leaving = why
        elif not self._leave_at:
            now, grace_s = time.monotonic(), self._settings.grace_s
            self._leave_at, self._leave_why = now + grace_s, why
            self._ask_at = now + min(_ONE_NOTICE_S, grace_s / 4)  # if they have had SIGTERM too we know by then
            if self._link.welcomed:
                self._say_notice()

    def _ask_workers_to_save(self) -> None:
        """Send SIGTERM to all workers, once: there is no manager, or none any more, that would have them save."""
        if not self._workers_know:
            self._workers_know = True
            for worker in self._workers.values():
                self._signal(worker, signal.SIGTERM)

    def _say_notice(self) -> None:
        self._link.say({"type": "notice", "grace_s": round(max(0.0, self._leave_at - time.monotonic()), 3)})

    def _say_goodbye(self) -> None:
        """Kill all workers, and tell the manager how those ended that we did not kill."""
        self._nursery.listen()
        for name in list(self._workers):
            self._door.drain(name)
        exit_codes: dict[int, int] = {}
        end_family(_REAP_S, exit_codes)
        for worker in list(self._workers.values()):
            if exit_codes.get(worker.pid, _KILLED) != _KILLED:
                self._bury(worker, exit_codes[worker.pid])
        self._link.say({"type": "leaving", "reason": self._leaving})

    # -- the manager

    def _register(self) -> None:
        self._link.say(
            {
                "type": "register",
                "node": self._settings.node,
                "address": self._settings.address,
                "slots": self._settings.slots or len(self._gpus) or 1,
                "pid": os.getpid(),
                "epoch": self._link.epoch,
                "workers": [worker.known() for worker in self._workers.values()],
                "ended": list(self._ended.known()),
            }
        )
        if self._nursery.warm:
            self._link.say({"type": "warm"})

    def _do(self, message: Message) -> None:
        match message.get("type"):
            case "spawn":
                self._spawn(message)
            case "tell" | "stop" | "inspect":
                self._do_to_worker(text_of(message, "worker"), message)
            case "forget":
                self._forget(text_of(message, "task"), str(message.get("worker") or ""))
            case "clear":
                for worker in list(self._workers.values()):
                    self._stop(worker, 0.0)
            case "bye":
                self._leaving = "the manager said goodbye"
            case "welcome":
                if self._leave_at:
                    self._say_notice()
            case other:
                self._note(f"the manager said '{other}', which this version does not know")

    def _do_to_worker(self, name: str, message: Message) -> None:
        worker = self._workers.get(name)
        match message["type"]:
            case "tell" if worker is not None:
                words = inner_of(message, "message")
                worker.on_message(words)
                self._door.tell(name, words)
            case "stop" if worker is not None:
                self._stop(worker, float(message.get("grace_s", 0.0)))
            case "inspect":
                self._inspect(name, worker)

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
                self._link.say({"type": "odd", "worker": name, "text": error.what})
            return
        if words is not None:
            worker.said(words)
            self._link.say({"type": "said", "worker": name, "message": words})

    def _spawn(self, message: Message) -> None:
        worker = WorkerRecord.of_order(message, 0)
        if worker.name in self._workers or worker.name in self._ended:  # it was ordered already
            return
        self._ended.replace(worker.task, worker.slot)
        self._workers[worker.name] = worker
        try:
            worker.order = self._order(worker, message)
        except OSError as error:
            self._bury(worker, 1, f"it cannot be started: {error}")
            return
        self._nursery.start()
        if self._nursery.warm:
            self._send_orders()

    def _order(self, worker: WorkerRecord, message: Message) -> Message:
        """Return the order to the nursery: the manager's, with all that the worker is to find in its environment."""
        worker.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        worker.log_start = worker.log.stat().st_size if worker.log.exists() else 0
        env = environment_of(message, "env") | {"BFTRAIN_SOCKET": self._door.path, "BFTRAIN_WORKER": worker.name}
        env |= {"BFTRAIN_ADDRESS": self._settings.address, "BFTRAIN_NODE": self._settings.node}
        env[GRACE] = f"{self._settings.grace_s:g}"
        env = {name: value for name, value in self._networking.items() if name not in os.environ} | env
        if self._gpus and not message.get("all_gpus"):
            env["CUDA_VISIBLE_DEVICES"] = self._gpus[worker.slot % len(self._gpus)]
        if message.get("want_port"):
            worker.port = self._free_port()
            env["MASTER_PORT"] = str(worker.port)
            message = message | {"argv": [word.replace("$MASTER_PORT", str(worker.port)) for word in message["argv"]]}
        return message | {"env": env}

    def _free_port(self) -> int:
        with socket.socket() as probe:
            probe.bind((self._settings.address, 0))
            port: int = probe.getsockname()[1]
            return port

    def _send_orders(self) -> None:
        """Have those workers started that waited for the nursery; until then they could be stopped without a trace."""
        for worker in self._workers.values():
            if worker.order is not None:
                self._nursery.send(worker.order)
                worker.order, worker.ordered_at = None, time.monotonic()

    def _stop(self, worker: WorkerRecord, grace_s: float) -> None:
        if worker.order is not None:
            self._bury(worker, _KILLED)
        elif grace_s > 0 and worker.pid:  # one that was not started yet has nothing to put in order
            if self._workers_know:
                worker.asked_to_end |= is_running(worker.pid)
            else:
                self._signal(worker, signal.SIGTERM)
            worker.kill_at = time.monotonic() + grace_s
        else:
            self._kill(worker)

    def _kill(self, worker: WorkerRecord) -> None:
        worker.condemned, worker.kill_at = True, 0.0
        if worker.pid:  # or as soon as it is born
            worker.ordered_at = worker.ordered_at or time.monotonic()
            self._signal(worker, signal.SIGKILL)

    def _signal(self, worker: WorkerRecord, number: int) -> None:
        if worker.pid:
            self._nursery.send({"type": "signal", "pid": worker.pid, "signal": int(number)})

    def _inspect(self, name: str, worker: WorkerRecord | None) -> None:
        """Have a worker write its stacks down, if it is one that can; tell the state of its process."""
        pid = worker.pid if worker is not None else 0
        if worker is not None and worker.warm and pid:
            self._nursery.send({"type": "inspect", "pid": pid})
        self._link.say({"type": "inspected", "worker": name, "state": state_of(pid) if pid else ""})

    def _forget(self, task: str, name: str) -> None:
        self._ended.forget(task, name)
        for worker in self._workers.values():
            if worker.task == task and name in {"", worker.name}:
                worker.forgotten = True

    def _bury(self, worker: WorkerRecord, code: int, words: str = "") -> None:
        """Tell the manager of a worker's end, and remember it for the next manager."""
        self._door.drain(worker.name)
        if self._workers.pop(worker.name, None) is None:
            return
        exit_ = worker.ended(code) | ({"tail": words} if words else {})
        if not worker.forgotten:
            self._ended.add(worker, exit_)
        self._link.say({"type": "exited", "worker": worker.name, **exit_})

    # -- the nursery

    def _from_nursery(self, message: Message) -> None:
        worker = self._workers.get(message.get("worker", ""))
        match message["type"]:
            case "born" if worker is not None:
                worker.pid, worker.ordered_at = message["pid"], 0.0
                self._link.say({"type": "spawned", "worker": worker.name, "pid": worker.pid, "port": worker.port})
                if worker.condemned:
                    self._kill(worker)
            case "died" if worker is not None:
                worker.asked_to_end |= bool(message.get("asked_to_end"))
                self._bury(worker, message["code"])
            case "notice":
                # A scheduler that signals the nursery signals all processes here. A second SIGTERM could interrupt
                # a worker that saves since the first.
                self._workers_know |= message["signal"] == signal.SIGTERM.name
                self._take_notice(message["signal"])
            case "warm":
                self._link.say({"type": "warm"})
                for missing in message["missing"]:
                    self._note(f"not preloaded: {missing}")
                self._send_orders()

    def _nursery_lost(self) -> None:
        """Bury all workers that it started: they died with their parent, and what they left came to us."""
        exit_codes = self._nursery.bury()
        for worker in list(self._workers.values()):
            if worker.order is None:
                self._bury(worker, exit_codes.get(worker.pid, _KILLED))
        if not self._leaving:
            self._nursery.start()
            if not self._nursery.runs:
                self._note("its nursery ended before it was ready; another one is started soon")

    def _look_after_nursery(self, now: float) -> None:
        """Kill a nursery that was stopped, and so starts and kills no worker: its workers end with it."""
        waits = any(one.ordered_at and now - one.ordered_at > _OBEY_S for one in self._workers.values())
        if waits and self._nursery.stands_still():
            self._note("its nursery was stopped and does not obey: it is killed, and another one takes its place")
            self._nursery.kill()

    def _note(self, text: str) -> None:
        sys.stderr.write(f"bftrain agent {self._settings.node}: {text}\n")


def main(arguments: list[str] | None = None) -> int:
    """Run an agent from its command line."""
    parser = command_line((__doc__ or "").partition("\n")[0])
    given = parser.parse_args(arguments)
    signal.pthread_sigmask(signal.SIG_BLOCK, NOTICES)  # until the agent can answer
    if given.parent:
        die_with(given.parent, signal.SIGTERM)
    try:
        agent = NodeAgent(AgentSettings.of(given))
    except (ElasticError, ValueError) as error:
        parser.error(str(error))
    return agent.run()
