"""A prefork server: imports slow modules once, then forks workers that start immediately.

An agent has a server for commands, without imports, and one for scripts unless ``--preload`` is empty. A prefork server
is the parent of its workers and takes orders from its agent. It adopts orphans. When the agent exits, it kills all
remaining processes and exits. It does the same when the agent is silent for so long that the manager gives the node up
and may start the workers elsewhere.

Schedulers signal all processes of a node. A prefork server survives these signals, because its workers would die with
it, and reports them to its agent.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import math
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from bftrain_elastic.agent.process_tree import (
    adopt_orphans,
    children,
    descendants,
    die_with,
    end_descendants,
    group_alive,
    handles_sigterm,
    kill,
)
from bftrain_elastic.errors import ElasticError
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire import agent_messages as messages
from bftrain_elastic.wire.messages import LINE_LIMIT, MessageLines, WireMessage, decode, encode, read_message
from bftrain_elastic.worker import step_records

# Modules that most training scripts import and that load slowly
PRELOADED: Final = ("torch", "torch.distributed", "torch._dynamo", "torch.nn.parallel", "torch.optim")
# Modules for the scripts of one launcher: imported before its first script
LATER: Final = {"horovod": ("horovod.torch", "horovod.torch.elastic")}
LAUNCHER: Final = "BFTRAIN_LAUNCHER"
# Signals that announce a preemption of the node
NOTICES: Final = frozenset({signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP})
STACKS: Final = signal.SIGRTMIN + 11  # makes a warm worker write the stacks of all threads into its log
# Signals blocked until a fork has its own handlers
_BLOCKED: Final = frozenset({*NOTICES, signal.SIGINT, signal.SIGCHLD, STACKS})
_CANNOT_START: Final = 127  # exit code, as of a shell for a missing command
_PACKAGE_FOLDER: Final = str(Path(__file__).parents[1])
_RUNPY: Final = "<frozen runpy>"


class PreforkServer:
    """Event loop around the agent's socket and the workers' exits."""

    def __init__(self, agent: socket.socket, signals: int) -> None:
        self._agent = agent
        self._signals = signals  # file descriptor of the received signal numbers
        self._lines = MessageLines(LINE_LIMIT)
        self._workers: dict[int, str] = {}  # pid -> worker name
        self._asked_to_end: dict[int, bool] = {}  # pids with an order to end by SIGTERM -> whether they handle it
        self._signalled: set[int] = set()  # pids that ran when a scheduler sent SIGTERM to all processes
        self._noticed_at = -math.inf  # time when a scheduler signalled all processes of the node
        self._outlived: dict[int, float] = {}  # pids that SIGTERM killed before their children -> time of death

    def run(self) -> None:
        """Serve the agent until it exits or is silent for too long."""
        silent_s = 0.0
        with selectors.DefaultSelector() as selector:
            selector.register(self._agent, selectors.EVENT_READ)
            selector.register(self._signals, selectors.EVENT_READ)
            self._reap()
            while silent_s < TIMEOUTS.prefork_silence_s:
                begun = time.monotonic()
                ready = [key.fileobj for key, _ in selector.select(TIMEOUTS.prefork_beat_s)]
                # Count a limited time: if this process was stopped, the agent may have sent messages, or was stopped
                # itself
                silent_s += min(time.monotonic() - begun, 2 * TIMEOUTS.prefork_beat_s)
                if self._signals in ready:
                    self._on_signals()
                self._report_outlived()  # also checks the time limit
                if self._agent in ready:
                    silent_s = 0.0
                    data = b""
                    with suppress(ConnectionResetError):  # the agent was killed before it had read all messages
                        data = self._agent.recv(65536)
                    if not data:
                        return
                    for line in self._lines.feed(data):
                        self._on_message(read_message(messages.TO_PREFORK, decode(line)))

    def _on_message(self, message: WireMessage | None) -> None:
        match message:
            case messages.SpawnWorker():
                self._spawn(message)
            # Skip pids that have exited: another process may have the same number now
            case messages.InspectProcess(pid=pid) if pid in self._workers:
                kill(pid, STACKS)
            case messages.SignalProcess(pid=pid, signal=number) if pid in self._workers:
                self._signal(pid, number)

    def _signal(self, pid: int, number: int) -> None:
        """Pass a signal on, except a SIGTERM that the scheduler has already sent: two can interrupt a save."""
        if number == signal.SIGTERM:
            self._on_signals()  # the scheduler's signal may arrive before the agent's report
            if pid not in self._workers:  # it has exited meanwhile
                return
            # An exit with 0 is a reaction to SIGTERM only with a handler
            self._asked_to_end[pid] = self._asked_to_end.get(pid, False) or handles_sigterm(pid)
            if pid in self._signalled:
                return
        _signal_group(pid, number)

    def _spawn(self, order: messages.SpawnWorker) -> None:
        for module in LATER.get(order.env.get(LAUNCHER, ""), ()):
            with suppress(ImportError):  # the worker reports the error
                import_module(module)
        parent = os.getpid()
        # A signal during the fork would run our handlers in the child
        signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        try:
            pid = os.fork()
            if pid == 0:
                _run_worker(order, parent)
        except OSError as error:  # no process can be created now; running workers continue
            with suppress(OSError), open(_open_log(order.log), "w", encoding="utf-8") as file:
                file.write(f"bftrain: cannot start: {error.strerror}\n")
            self._send(messages.ProcessEnded(order.worker, _CANNOT_START))
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
        self._workers[pid] = order.worker
        self._send(messages.ProcessStarted(order.worker, pid))

    def _on_signals(self) -> None:
        with suppress(BlockingIOError):
            numbers = set(os.read(self._signals, 4096))
            if numbers & NOTICES:
                self._noticed_at = time.monotonic()
            if signal.SIGTERM in numbers:
                self._signalled |= set(self._workers)
            if signal.SIGCHLD in numbers:
                self._reap()
            if numbers & NOTICES:
                number = signal.SIGTERM if signal.SIGTERM in numbers else min(numbers & NOTICES)
                self._send(messages.SignalNotice(signal.Signals(number).name))

    def _reap(self) -> None:
        """Report exited workers to the agent. If this process is killed meanwhile, the agent reaps the rest."""
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                # A shell that runs a program dies of SIGTERM immediately, while the program still saves
                if ended.si_pid in self._workers and code == -signal.SIGTERM:
                    self._outlived[ended.si_pid] = time.monotonic()
                elif ended.si_pid in self._workers:
                    self._report_exit(ended.si_pid, code)
                os.waitpid(ended.si_pid, 0)
        self._report_outlived()
        self._kill_orphans()

    def _report_outlived(self) -> None:
        """Report dead workers once their children have exited, or soon if no SIGTERM was sent.

        After a SIGTERM, the agent limits the time.
        """
        for pid, ended_at in list(self._outlived.items()):
            asked = pid in self._asked_to_end or self._noticed_at > ended_at - TIMEOUTS.one_notice_s
            if not group_alive(pid) or (not asked and time.monotonic() - ended_at > TIMEOUTS.one_notice_s):
                self._report_exit(pid, -signal.SIGTERM)

    def _report_exit(self, pid: int, code: int) -> None:
        """Kill a worker's remaining processes, and report its exit code."""
        worker, asked = self._workers.pop(pid), self._asked_to_end.pop(pid, False)
        self._outlived.pop(pid, None)
        self._signalled.discard(pid)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        self._kill_orphans()
        self._send(messages.ProcessEnded(worker, code, asked))

    def _kill_orphans(self) -> None:
        """Kill adopted processes left by dead workers."""
        for pid in children(os.getpid()):
            with suppress(ProcessLookupError):
                if pid not in self._workers and os.getsid(pid) not in self._workers:
                    kill(pid)

    def _send(self, message: WireMessage) -> None:
        with suppress(OSError):  # the agent has exited; the loop detects it
            self._agent.sendall(encode(message.to_dict()) + b"\n")


def _signal_group(worker: int, number: int) -> None:
    """Send a signal to a worker and its process group; SIGKILL reaches all its descendants."""
    if number == signal.SIGKILL:
        for pid in (worker, *descendants(worker)):
            kill(pid)
    try:
        os.killpg(worker, number)
    except ProcessLookupError:  # a new fork has no process group yet
        kill(worker, number)
    except PermissionError:
        pass


def _run_worker(order: messages.SpawnWorker, parent: int) -> NoReturn:
    code = 1
    try:
        die_with(parent)
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, *NOTICES):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        out = _open_log(order.log)
        os.dup2(out, 1)
        os.dup2(out, 2)
        if order.warm:
            faulthandler.register(STACKS, file=2, all_threads=True)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
        os.environ.update(order.env)
        os.chdir(order.cwd)
        argv = list(order.argv)
        # Close the descriptors of the agent and of the prefork server
        os.closerange(3, 4096)
        if order.warm:
            code = run_script(argv)
        else:
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # signals that Python ignores
                signal.signal(number, signal.SIG_DFL)
            os.execvpe(argv[0], argv, os.environ)  # noqa: S606 - a program and its arguments, no shell
    except (OSError, ValueError) as error:  # ValueError: an argument or a name that the kernel rejects
        sys.stderr.write(f"bftrain: cannot start: {error}\n")
        code = _CANNOT_START
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _open_log(log: str) -> int:
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def run_script(argv: list[str]) -> int:
    """Run a script as ``python script.py`` would, and return its exit code."""
    sys.argv = argv
    sys.path[0] = str(Path(argv[0]).resolve().parent)
    try:
        if os.environ.get(LAUNCHER) == "horovod":
            from bftrain_elastic.worker import horovod_training

            horovod_training.install()
        begin_random_numbers()
        if folder := os.environ.get(step_records.FOLDER):
            step_records.record_steps(folder)
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001 - any end of a script is shown, and ends the worker
        sys.stderr.write(traceback_of_script(error))
        return 1
    finally:
        # The worker exits by os._exit, which skips the prefork server's cleanup, and also these two steps of Python
        with suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - waits for threads, as the end of Python does
        with suppress(BaseException):
            atexit._run_exitfuncs()  # noqa: SLF001
    return 0


def begin_random_numbers() -> None:
    """Reseed the generators of modules that were imported before the fork: forks must not draw the same numbers."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.seed()
    if (numbers := sys.modules.get("numpy.random")) is not None:
        numbers.seed()


def traceback_of_script(error: BaseException) -> str:
    """Return the traceback of a script's error from its first line in the script on."""
    shown = error.__traceback__
    while shown is not None and _is_ours(shown.tb_frame.f_code.co_filename):
        shown = shown.tb_next
    if shown is None and not isinstance(error, ElasticError | SyntaxError | OSError):
        shown = error.__traceback__  # an internal error
    return "".join(traceback.format_exception(error.with_traceback(shown)))


def _is_ours(filename: str) -> bool:
    return filename == _RUNPY or filename.startswith(_PACKAGE_FOLDER)


def import_modules(names: Iterable[str]) -> list[str]:
    """Import modules for all forks of this process; return the failed modules with reasons."""
    # Checks for CUDA must not initialize it here: forks of a process with CUDA cannot use it
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    missing = []
    folder = sys.path.pop(0)  # working directory: one of its folders may have the name of a library
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            missing.append(f"{name}: {error}")
    sys.path.insert(0, folder)
    gc.collect()
    gc.freeze()  # forks share these pages until the collector touches them
    return missing


def serve(descriptor: int, agent_pid: int, *, modules: Sequence[str]) -> None:
    """Run a prefork server on its side of the agent's socket; import ``modules`` first."""
    die_with(agent_pid)  # no workers exist during the imports, and the socket is not read
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent handles Ctrl-C
    signals, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)  # receives the numbers of all signals
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *NOTICES):  # survive the signals of schedulers
        if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
            signal.signal(number, lambda *_: None)
    adopt_orphans()
    agent = socket.socket(fileno=descriptor)
    missing = import_modules(modules)
    die_with(agent_pid, signal.SIGCONT)  # SIGCONT: a stopped process must notice the agent's exit
    with suppress(ConnectionError):  # the agent has exited; the loop detects it
        agent.sendall(encode(messages.PreforkWarm(tuple(missing)).to_dict()) + b"\n")
    try:
        PreforkServer(agent, signals).run()
    finally:
        end_descendants()
