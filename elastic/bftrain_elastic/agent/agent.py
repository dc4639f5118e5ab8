"""The agent: a small process on each node between its workers and the manager.

It relays messages, and starts and stops workers through two prefork servers: one for commands, which imports no
modules, and one for scripts, which imports torch when the first script is expected. If the site lends memory, a copy
server keeps copies of the states of tasks on other nodes.

On SIGTERM the agent kills all processes it started, tells the manager that it leaves, and exits. With a grace period it
announces its exit first, and exits after its last worker or at the deadline. If the agent dies, its prefork servers
kill the workers. If the manager is gone for long, the agent exits. Until then workers continue, unless
``Welcome.keep_s`` ends them, and the agent keeps their records for the next manager. An agent with infinite patience
stays and waits for the next manager.
"""

from __future__ import annotations

import math
import os
import selectors
import shutil
import signal
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from bftrain_elastic.agent import prefork_server
from bftrain_elastic.agent.agent_settings import AgentSettings, command_line
from bftrain_elastic.agent.connections import ManagerLink, WorkerSocket
from bftrain_elastic.agent.node_copies import NodeCopies
from bftrain_elastic.agent.prefork_process import PreforkProcess
from bftrain_elastic.agent.prefork_server import NOTICES
from bftrain_elastic.agent.process_tree import adopt_orphans, die_with, end_descendants, handles_sigterm, state_of
from bftrain_elastic.agent.worker_records import EndedWorkers, WorkerRecord, limit_logs
from bftrain_elastic.errors import ElasticError
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire import agent_messages as messages
from bftrain_elastic.wire.messages import Message, WireMessage, read_message
from bftrain_elastic.wire.network_interfaces import free_port
from bftrain_elastic.wire.worker_messages import FROM_WORKER
from bftrain_elastic.worker.termination import GRACE

_KILLED: Final = -int(signal.SIGKILL)


@dataclass(eq=False)
class Departure:
    """The exit of an agent: the announced loss of its node, if any, and its reason to exit. Times are monotonic."""

    reason: str = ""  # set: the agent exits now
    gave_up: bool = False  # exit with an error code
    announced: str = ""  # signal that announced the loss
    deadline: float = math.inf  # end of the grace period
    ask_at: float = math.inf  # time to ask the workers to save if no manager does it
    terminated_at: float = math.inf  # time of the first SIGTERM
    workers_notified: bool = False  # the scheduler or this agent has sent workers SIGTERM

    def announce(self, why: str, grace_s: float) -> None:
        """Start the grace period."""
        now = time.monotonic()
        self.announced, self.deadline = why, now + grace_s
        self.ask_at = now + min(TIMEOUTS.one_notice_s, grace_s / 4)  # a SIGTERM of the scheduler is known by then


class NodeAgent:
    """Event loop around manager, prefork servers and workers."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        if settings.parent:
            die_with(settings.parent, signal.SIGTERM)
        self._selector = selectors.DefaultSelector()
        self._workers: dict[str, WorkerRecord] = {}
        self._ended = EndedWorkers()
        self._link = ManagerLink(
            self._selector,
            settings.manager,
            settings.secret,
            on_message=self._on_manager_message,
            on_greeted=self._register,
            note=self._note,
        )
        self._worker_socket = WorkerSocket(
            self._selector, is_known=self._workers.__contains__, on_message=self._on_worker_message, note=self._note
        )
        prefork = partial(
            PreforkProcess,
            self._selector,
            nice=settings.nice,
            on_message=self._on_prefork_message,
            on_lost=self._on_prefork_lost,
        )
        serve = prefork_server.serve
        self._commands = prefork(serve=partial(serve, modules=()))
        # If there are no modules to import, one server starts commands and scripts
        self._scripts = prefork(serve=partial(serve, modules=settings.preload)) if settings.preload else self._commands
        self._copies = NodeCopies(self._selector, settings, send=self._link.send, on_lost=self._on_prefork_lost)
        # Servers that should run
        self._preforks = [self._commands, self._copies.process] if settings.copies_bytes else [self._commands]
        self._signals: list[int] = []  # signals received and not yet handled
        self._departure = Departure()
        self._beat_at = 0.0
        self._noted_link = ""  # state of the connection in the latest note

    def run(self) -> int:
        """Serve until ordered to exit; return the exit code."""
        adopt_orphans()
        wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        self._selector.register(wake, selectors.EVENT_READ, lambda _: os.read(wake, 4096))
        for number in (signal.SIGINT, *NOTICES):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _: self._signals.append(number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, NOTICES)
        try:
            self._commands.start()
            while not self._departure.reason:
                self._link.on_time()
                for key, events in self._selector.select(self._wait_s()):
                    key.data(events)
                self._on_time()
            self._close()
        finally:
            gone = end_descendants()
            if self._settings.remove is not None and self._parent_exited():
                shutil.rmtree(self._settings.remove, ignore_errors=True)
        return 0 if gone and not self._departure.gave_up else 1

    def _wait_s(self) -> float:
        times = [self._link.next_at, self._beat_at, self._departure.deadline]
        times += [one.kill_at for one in self._workers.values() if one.kill_at]
        return max(0.0, min(times) - time.monotonic())

    def _on_time(self) -> None:
        while self._signals:
            self._on_signal(self._signals.pop(0))
        now = time.monotonic()
        for worker in self._workers.values():
            if worker.kill_at and now >= worker.kill_at:
                self._kill(worker)
        if now >= self._beat_at:
            self._beat_at = now + TIMEOUTS.prefork_beat_s
            for prefork in self._preforks:
                prefork.start()
                prefork.send(messages.Alive())
                self._kill_prefork_if_stopped(prefork, now)
            limit_logs(self._workers.values(), self._settings.log_limit)
            self._note_link()
        if self._link.alone_s > self._settings.patience_s:
            self._give_up(f"no manager for {self._settings.patience_s:g} s", f": {self._link.trouble}")
        keep_s = math.inf if self._link.welcome.keep_s is None else self._link.welcome.keep_s
        if self._workers and (self._link.alone_s > keep_s or self._link.silent):
            self._kill_all()  # a job may start here unnoticed, or the manager starts the same workers elsewhere
        if now >= self._departure.ask_at and not self._link.welcomed:
            self._ask_workers_to_save()
        if self._departure.announced and (not self._workers or now >= self._departure.deadline):
            self._departure.reason = self._departure.announced

    def _give_up(self, reason: str, details: str = "") -> None:
        self._departure.reason, self._departure.gave_up = reason, True
        self._note(f"{reason}{details}")

    def _on_signal(self, number: int) -> None:
        name, now = signal.Signals(number).name, time.monotonic()
        again = number == signal.SIGTERM and now - self._departure.terminated_at > TIMEOUTS.one_notice_s
        if number == signal.SIGINT or self._parent_exited() or again:
            self._departure.reason = name
        else:
            if number == signal.SIGTERM:
                self._departure.terminated_at = min(now, self._departure.terminated_at)
            self._on_notice(name)

    def _on_notice(self, why: str) -> None:
        """Leave immediately, or start the grace period and report it to the manager."""
        if self._settings.grace_s <= 0:
            self._departure.reason = why
        elif not self._departure.announced:
            self._departure.announce(why, self._settings.grace_s)
            if self._link.welcomed:
                self._send_notice()

    def _ask_workers_to_save(self) -> None:
        """Send SIGTERM to all workers, once: with no manager, this is their only request to save."""
        if not self._departure.workers_notified:
            self._departure.workers_notified = True
            for worker in self._workers.values():
                self._signal(worker, signal.SIGTERM)

    def _send_notice(self) -> None:
        self._link.send(messages.PreemptionNotice(round(max(0.0, self._departure.deadline - time.monotonic()), 3)))

    def _close(self) -> None:
        """Kill all processes; report to the manager the workers that had exited before."""
        began = time.monotonic()
        for prefork in self._preforks:
            prefork.read_pending()
        for name in list(self._workers):
            self._worker_socket.drain(name)
        exit_codes: dict[int, int] = {}
        end_descendants(TIMEOUTS.reap_s, exit_codes)
        for worker in list(self._workers.values()):
            if exit_codes.get(worker.pid, _KILLED) != _KILLED:
                self._record_exit(worker, exit_codes[worker.pid])
        self._link.send(messages.AgentLeaving(self._departure.reason, round(time.monotonic() - began, 4)))

    def _register(self) -> None:
        self._link.send(
            messages.RegisterAgent(
                node=self._settings.node,
                address=self._settings.address,
                slots=self._settings.slots,
                pid=os.getpid(),
                instance=self._worker_socket.name,
                epoch=self._link.welcome.epoch,
                version=messages.VERSION,
                kind=self._settings.kind,
                gpus=min(self._settings.slots, len(self._settings.gpus.names)),
                workers=tuple(worker.left for worker in self._workers.values()),
                ended=tuple(self._ended.summaries()),
            )
        )
        if self._scripts.warm:
            self._link.send(messages.AgentWarm())
        self._copies.report()

    def _on_manager_message(self, message: WireMessage) -> None:
        match message:
            case messages.SpawnWorker():
                self._spawn(message)
            case messages.ExpectScripts():
                self._expect_scripts()
            case messages.MessageToWorker() | messages.StopWorker() | messages.InspectWorker():
                self._on_worker_order(self._workers.get(message.worker), message)
            case messages.ForgetWorkers(task=task, worker=name):
                self._forget(task, name)
            case messages.DropCopy(task=task):
                self._copies.drop(task)
            case messages.ClearNode():
                self._kill_all()
            case messages.Goodbye():
                self._on_goodbye()
            case messages.AgentRefused(reason=reason):
                self._give_up(reason)
            case messages.Welcome() if self._departure.announced:
                self._send_notice()

    def _on_goodbye(self) -> None:
        if self._settings.stays:
            self._kill_all()
            self._link.pause("it closed the connection", TIMEOUTS.goodbye_retry_s)
        else:
            self._departure.reason = "the manager closed the connection"

    def _on_worker_order(
        self,
        worker: WorkerRecord | None,
        message: messages.MessageToWorker | messages.StopWorker | messages.InspectWorker,
    ) -> None:
        match message:
            case messages.MessageToWorker(message=order) if worker is not None:
                worker.record_order(order)
                self._worker_socket.send(worker.name, self._copies.with_key(order))
            case messages.StopWorker(grace_s=grace_s) if worker is not None:
                self._stop(worker, grace_s)
            case messages.InspectWorker(worker=name):
                pid = worker.pid if worker is not None else 0
                if worker is not None and worker.order.warm and pid:  # the worker can dump its stacks
                    self._scripts.send(messages.InspectProcess(pid))
                self._link.send(messages.WorkerInspected(name, state_of(pid) if pid else ""))

    def _on_worker_message(self, name: str, message: Message) -> None:
        worker = self._workers.get(name)
        if worker is None:
            return
        if (report := read_message(FROM_WORKER, message)) is not None:
            worker.record_message(report)
            self._link.send(messages.MessageFromWorker(name, report.to_dict()))

    def _spawn(self, order: messages.SpawnWorker) -> None:
        worker = WorkerRecord(order)
        if worker.name in self._workers or worker.name in self._ended:  # repeated order
            return
        self._ended.forget(order.task, slot=order.slot)
        self._workers[worker.name] = worker
        try:
            worker.pending = self._order(worker, order)
        except OSError as error:
            self._record_exit(worker, 1, f"it cannot be started: {error}")
            return
        if order.warm:
            self._expect_scripts()
        prefork = self._prefork_of(worker)
        prefork.start()
        if prefork.warm:
            self._send_orders(prefork)

    def _expect_scripts(self) -> None:
        """Import the modules that scripts need, before the first script is ordered or with it."""
        if self._scripts not in self._preforks:
            self._preforks.append(self._scripts)
            self._scripts.start()

    def _prefork_of(self, worker: WorkerRecord) -> PreforkProcess:
        return self._scripts if worker.order.warm else self._commands

    def _workers_of(self, prefork: PreforkProcess) -> list[WorkerRecord]:
        return [worker for worker in self._workers.values() if self._prefork_of(worker) is prefork]

    def _order(self, worker: WorkerRecord, order: messages.SpawnWorker) -> messages.SpawnWorker:
        """Return the manager's order for a prefork server, with the complete environment of the worker."""
        worker.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        worker.log_start = worker.log.stat().st_size if worker.log.exists() else 0
        env = order.env | {
            "BFTRAIN_SOCKET": self._worker_socket.name,
            "BFTRAIN_WORKER": worker.name,
            "BFTRAIN_ADDRESS": self._settings.address,
            "BFTRAIN_NODE": self._settings.node,
            GRACE: f"{self._settings.grace_s:g}",
        }
        env = {name: value for name, value in self._settings.networking.items() if name not in os.environ} | env
        env |= self._settings.gpus.environment(order.slot, all_gpus=order.all_gpus)
        if order.want_port:
            worker.port = free_port(self._settings.address)
            env["MASTER_PORT"] = str(worker.port)
        return replace(order, env=env)

    def _send_orders(self, prefork: PreforkProcess) -> None:
        """Start the workers that waited for their prefork server; until then, orders can be cancelled."""
        for worker in self._workers_of(prefork):
            if worker.pending is not None:
                prefork.send(worker.pending)
                worker.pending, worker.ordered_at = None, time.monotonic()

    def _stop(self, worker: WorkerRecord, grace_s: float) -> None:
        if worker.pending is not None:
            self._record_exit(worker, _KILLED)
        elif grace_s > 0 and worker.pid:  # a worker that has not started has no state to save
            if self._departure.workers_notified:
                worker.asked_to_end |= handles_sigterm(worker.pid)
            else:
                self._signal(worker, signal.SIGTERM)
            worker.kill_at = time.monotonic() + grace_s
        else:
            self._kill(worker)

    def _kill_all(self) -> None:
        for worker in list(self._workers.values()):
            if not worker.kill_ordered:
                self._stop(worker, 0.0)

    def _kill(self, worker: WorkerRecord) -> None:
        worker.kill_ordered, worker.kill_at = True, 0.0
        if worker.pid:  # otherwise as soon as it has started
            worker.ordered_at = worker.ordered_at or time.monotonic()
            self._signal(worker, signal.SIGKILL)

    def _signal(self, worker: WorkerRecord, number: int) -> None:
        if worker.pid:
            self._prefork_of(worker).send(messages.SignalProcess(worker.pid, int(number)))

    def _forget(self, task: str, name: str) -> None:
        self._ended.forget(task, name)
        for worker in self._workers.values():
            worker.forgotten |= worker.order.task == task and name in {"", worker.name}

    def _record_exit(self, worker: WorkerRecord, code: int, output: str = "") -> None:
        """Report the exit of a worker to the manager, and record it for the next manager."""
        self._worker_socket.drain(worker.name)
        if self._workers.pop(worker.name, None) is None:
            return
        exit_ = worker.ended(code, output)
        # The log may have grown since the last beat
        limit_logs((worker, *self._workers.values()), self._settings.log_limit)
        if not worker.forgotten:
            self._ended.add(worker, exit_)
        self._link.send(messages.WorkerExited(worker.name, exit_.code, exit_.tail, exit_.finished, exit_.stopped))

    def _on_prefork_message(self, prefork: PreforkProcess, message: WireMessage) -> None:
        match message:
            case messages.ProcessStarted(worker=name, pid=pid):
                if (worker := self._workers.get(name)) is not None:
                    worker.pid, worker.ordered_at = pid, 0.0
                    self._link.send(messages.WorkerSpawned(worker.name, worker.pid, worker.port))
                    if worker.kill_ordered:
                        self._kill(worker)
            case messages.ProcessEnded(worker=name, code=code, asked_to_end=asked_to_end):
                if (worker := self._workers.get(name)) is not None:
                    worker.asked_to_end |= asked_to_end
                    self._record_exit(worker, code)
            case messages.SignalNotice(signal=name):
                # A scheduler that signals a prefork server signals all processes of the node. A second SIGTERM could
                # interrupt a worker that saves since the first.
                self._departure.workers_notified |= name == signal.SIGTERM.name
                self._on_notice(name)
            case messages.PreforkWarm(missing=missing):
                if prefork is self._scripts:
                    self._link.send(messages.AgentWarm())
                for module in missing:
                    self._note(f"not preloaded: {module}")
                self._send_orders(prefork)

    def _on_prefork_lost(self, prefork: PreforkProcess) -> None:
        """Record the exits of all its workers: they died with their parent, and this process adopted the orphans."""
        exit_codes = prefork.kill_remaining(keep=[one.pid for one in self._preforks if one is not prefork])
        for worker in self._workers_of(prefork):
            if worker.pending is None:
                self._record_exit(worker, exit_codes.get(worker.pid, _KILLED))
        if not self._departure.reason:
            prefork.start()
            if not prefork.runs:
                self._note("its prefork server exited during its start; a new one starts soon")

    def _kill_prefork_if_stopped(self, prefork: PreforkProcess, now: float) -> None:
        """Kill a prefork server that SIGSTOP has stopped while it has an order to carry out."""
        workers = self._workers_of(prefork)
        is_late = any(one.ordered_at and now - one.ordered_at > TIMEOUTS.prefork_obeys_s for one in workers)
        if is_late and prefork.kill_if_stopped():  # its workers die with it
            self._note("its prefork server was stopped (SIGSTOP): it is killed, and another one takes its place")

    def _note_link(self) -> None:
        """Report each loss of the manager, and each connection to it, of an agent that stays."""
        state = "connected" if self._link.welcomed else self._link.trouble and f"no manager: {self._link.trouble}"
        if self._settings.stays and state not in {"", self._noted_link}:
            self._noted_link = state
            self._note(state)

    def _parent_exited(self) -> bool:
        return self._settings.parent > 0 and os.getppid() != self._settings.parent

    def _note(self, text: str) -> None:
        sys.stderr.write(f"bftrain agent {self._settings.node}: {text}\n")


def main(arguments: list[str] | None = None) -> int:
    """Run an agent from its command line."""
    parser = command_line((__doc__ or "").partition("\n")[0])
    signal.pthread_sigmask(signal.SIG_BLOCK, NOTICES)  # blocked until the agent can answer
    try:
        settings = AgentSettings.read(parser, arguments)
        agent = NodeAgent(settings)
    except (ElasticError, ValueError) as error:
        parser.error(str(error))
    return agent.run()
