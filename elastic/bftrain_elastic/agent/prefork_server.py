"""The nursery: a process that has imported what is slow to import, and forks workers that therefore start at once.

It is the parent of all workers of a node. It takes orders from its agent, and it ends with it, and all workers
with both: it adopts orphans, and when its agent is gone it kills all that is left. It does the same when its agent
stands still for so long that the manager gives the node up, and may start the workers elsewhere.

Schedulers send their signals to all processes of a node. The nursery survives them, because the workers would die with
it, and tells its agent.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import math
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from bftrain_elastic.agent import tracebacks
from bftrain_elastic.agent.process_tree import (
    adopt_orphans,
    children,
    descendants,
    die_with,
    end_family,
    is_running,
    kill,
    kill_session,
    session_alive,
)
from bftrain_elastic.wire.messages import (
    LINE_LIMIT,
    Message,
    MessageLines,
    decode,
    encode,
    environment_of,
    text_of,
    texts_of,
    whole_of,
)

# What a training script will import sooner or later, and what takes long
PRELOADED: Final = ("torch", "torch.distributed", "torch._dynamo", "torch.nn.parallel", "torch.optim")
# And what only the scripts of one launcher will: imported before the first of them is run
LATER: Final = {
    "horovod": ("horovod.torch", "horovod.torch.elastic"),
    "torchrun": ("torch.distributed.run",),
}
LAUNCHER: Final = "BFTRAIN_LAUNCHER"
# By these a scheduler says that the node will be taken
NOTICES: Final = frozenset({signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP})
STACKS: Final = signal.SIGRTMIN + 11  # has a warm worker write the stacks of all its threads into its log
_BLOCKED: Final = frozenset({*NOTICES, signal.SIGINT, signal.SIGCHLD, STACKS})  # until a fork has its own handlers
_TICK_S: Final = 1.0
_SILENCE_S: Final = 8.0  # the agent speaks each second; its manager gives the node up after 10 s of silence
_ONE_NOTICE_S: Final = 1.0  # within which the signals of one notice reach all processes
_EMPTY: Final = 127  # what a shell says when it cannot find a command


class PreforkServer:
    """The loop around the agent's socket and the workers' ends."""

    def __init__(self, agent: socket.socket, signals: int) -> None:
        self._agent = agent
        self._signals = signals  # the signals that arrived can be read there
        self._lines = MessageLines(LINE_LIMIT)
        self._workers: dict[int, str] = {}  # pid -> name
        self._asked_to_end: set[int] = set()  # of these, those that got SIGTERM and time to put things in order
        self._signalled: set[int] = set()  # of these, those that ran when a scheduler sent SIGTERM to all processes
        self._noticed_at = -math.inf  # when a scheduler signalled all processes of the node
        self._outlived: dict[int, float] = {}  # workers that SIGTERM ended before their children -> when

    def run(self) -> None:
        """Serve the agent until it is gone, or silent for too long."""
        silent_s = 0.0
        with selectors.DefaultSelector() as selector:
            selector.register(self._agent, selectors.EVENT_READ)
            selector.register(self._signals, selectors.EVENT_READ)
            self._reap()
            while silent_s < _SILENCE_S:
                begun = time.monotonic()
                ready = [key.fileobj for key, _ in selector.select(_TICK_S)]
                # Not the whole time if we stood still ourselves: then the agent may have spoken, or stood still too
                silent_s += min(time.monotonic() - begun, 2 * _TICK_S)
                if self._signals in ready:
                    self._on_signals()
                self._bury_outlived()  # this is the time to give up waiting, too
                if self._agent in ready:
                    silent_s = 0.0
                    data = self._agent.recv(65536)
                    if not data:
                        return
                    self._lines.feed(data)
                    while (line := self._lines.next()) is not None:
                        self._do(decode(line))

    def _do(self, message: Message) -> None:
        if message.get("type") == "spawn":
            self._spawn(message)
        elif message.get("type") in {"signal", "inspect"}:
            pid = whole_of(message, "pid")
            if pid not in self._workers:  # it is gone, and perhaps another process has its number now
                return
            if message["type"] == "inspect":
                kill(pid, STACKS)
            else:
                self._signal(pid, whole_of(message, "signal"))

    def _signal(self, pid: int, number: int) -> None:
        """Pass a signal on, unless it is a SIGTERM that the worker has from the scheduler: two can interrupt a save."""
        if number == signal.SIGTERM:
            self._on_signals()  # the scheduler's may be here, and the agent not know of it yet
            if pid not in self._workers:  # it ended since
                return
            if is_running(pid):
                self._asked_to_end.add(pid)
            if pid in self._signalled:
                return
        _signal(pid, number)

    def _spawn(self, message: Message) -> None:
        worker = text_of(message, "worker")
        for module in LATER.get(environment_of(message, "env").get(LAUNCHER, ""), ()):
            with suppress(ImportError):  # the worker will say so
                import_module(module)
        parent = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)  # one that comes now would find our handlers in the child
        try:
            pid = os.fork()
            if pid == 0:
                _become(message, parent)
        except OSError as error:  # no process can be made now; those that run go on
            _write_why(Path(text_of(message, "log")), error)
            self._tell({"type": "died", "worker": worker, "code": _EMPTY, "asked_to_end": False})
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
        self._workers[pid] = worker
        self._tell({"type": "born", "worker": worker, "pid": pid})

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
                self._tell({"type": "notice", "signal": signal.Signals(number).name})

    def _reap(self) -> None:
        """Tell the agent of workers that ended. It reaps those that we have not, if we are killed meanwhile."""
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                # As a shell that runs a program: SIGTERM ends it at once, while the program saves
                if ended.si_pid in self._workers and code == -signal.SIGTERM:
                    self._outlived[ended.si_pid] = time.monotonic()
                elif ended.si_pid in self._workers:
                    self._bury(ended.si_pid, code)
                os.waitpid(ended.si_pid, 0)
        self._bury_outlived()
        self._kill_orphans()

    def _bury_outlived(self) -> None:
        """Bury workers whose children have ended too, or that were not asked to end. The agent limits the time."""
        for pid, ended_at in list(self._outlived.items()):
            asked = pid in self._asked_to_end or self._noticed_at > ended_at - _ONE_NOTICE_S
            if not session_alive(pid) or (not asked and time.monotonic() - ended_at > _ONE_NOTICE_S):
                self._bury(pid, -signal.SIGTERM)

    def _bury(self, pid: int, code: int) -> None:
        """Kill what a worker left behind, and tell of its end."""
        worker, asked = self._workers.pop(pid), pid in self._asked_to_end
        self._outlived.pop(pid, None)
        self._asked_to_end.discard(pid)
        self._signalled.discard(pid)
        kill_session(pid)
        self._kill_orphans()
        self._tell({"type": "died", "worker": worker, "code": code, "asked_to_end": asked})

    def _kill_orphans(self) -> None:
        """Kill what dead workers left behind: adopted processes without a session of ours."""
        for pid in children(os.getpid()):
            with suppress(ProcessLookupError):
                if pid not in self._workers and os.getsid(pid) not in self._workers:
                    kill(pid)

    def _tell(self, message: Message) -> None:
        with suppress(OSError):  # the agent is gone: the loop will see it
            self._agent.sendall(encode(message) + b"\n")


def _signal(worker: int, number: int) -> None:
    """Send a signal to a worker and its session; SIGKILL goes to all its descendants."""
    if number == signal.SIGKILL:
        for pid in (worker, *descendants(worker)):
            kill(pid)
    try:
        os.killpg(worker, number)
    except ProcessLookupError:  # it was forked just now, and has no session yet
        kill(worker, number)
    except PermissionError:
        pass


def _become(message: Message, parent: int) -> NoReturn:
    """Be a worker: in the child, for ever."""
    code = 1
    try:
        die_with(parent)
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, *NOTICES):
            signal.signal(number, signal.SIG_DFL)
        _redirect(Path(text_of(message, "log")))
        if message.get("warm"):
            faulthandler.register(STACKS, file=2, all_threads=True)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
        os.environ.update(environment_of(message, "env"))
        os.chdir(text_of(message, "cwd"))
        argv = texts_of(message, "argv")
        # The agent's and the nursery's own descriptors are none of the worker's business
        os.closerange(3, 4096)
        if message.get("warm"):
            code = run_script(argv)
        else:
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
                signal.signal(number, signal.SIG_DFL)
            os.execvpe(argv[0], argv, os.environ)  # noqa: S606 - a program and its arguments, no shell
    except (OSError, ValueError) as error:  # the second: a word or a name that the kernel cannot take
        sys.stderr.write(f"bftrain: cannot start: {error}\n")
        code = _EMPTY
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _write_why(log: Path, error: OSError) -> None:
    """Write into a worker's log why it could not be started."""
    with suppress(OSError), open(_open_log(log), "w", encoding="utf-8") as file:
        file.write(f"bftrain: cannot start: {error.strerror}\n")


def _open_log(log: Path) -> int:
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _redirect(log: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    out = _open_log(log)
    os.dup2(nothing, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)


def run_script(argv: list[str]) -> int:
    """Run a script as ``python script.py`` would, and give its exit code."""
    sys.argv = argv
    sys.path[0] = str(Path(argv[0]).resolve().parent)
    try:
        if os.environ.get(LAUNCHER) == "horovod":
            from bftrain_elastic.worker import horovod_worker

            horovod_worker.install()
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001 - any end of a script is shown, and ends the worker
        sys.stderr.write(tracebacks.of_script(error))
        return 1
    finally:
        # os._exit, which spares us the nursery's own end, would leave both out
        with suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - waits for threads, as the end of Python does
        with suppress(BaseException):
            atexit._run_exitfuncs()  # noqa: SLF001
    return 0


def main(arguments: list[str]) -> None:
    """Run a nursery: ``FD AGENT_PID DOOR MODULE...``, FD being its end of the socket to the agent.

    DOOR is the folder in which the agent lets workers in: if the agent was killed, it is left to us.
    """
    agent_pid = int(arguments[1])
    die_with(agent_pid)  # while we import there are no workers, and no one reads the socket
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the agent's to answer
    signals = _catch_signals()
    adopt_orphans()
    agent = socket.socket(fileno=int(arguments[0]))
    # Checks for CUDA here must not start it: forks of a process that did cannot use it
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    missing = []
    for module in arguments[3:]:
        try:
            import_module(module)
        except ImportError as error:
            missing.append(f"{module}: {error}")
    gc.collect()
    gc.freeze()  # forks share the pages of all this, as long as the collector leaves it alone
    die_with(agent_pid, signal.SIGCONT)  # so that we see that it is gone even if we were stopped
    agent.sendall(encode({"type": "warm", "missing": missing}) + b"\n")
    try:
        PreforkServer(agent, signals).run()
    finally:
        end_family()
        if os.getppid() != agent_pid:
            shutil.rmtree(arguments[2], ignore_errors=True)


def _catch_signals() -> int:
    """Survive the signals of schedulers; return the descriptor from which the numbers of all signals can be read."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in NOTICES:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda *_: None)
    return read_end


if __name__ == "__main__":
    main(sys.argv[1:])
