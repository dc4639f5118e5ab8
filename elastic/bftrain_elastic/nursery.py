"""The nursery: a process that has imported what is slow to import, and forks workers that therefore start at once.

It is the parent of all workers of a node. It is told what to do by its agent, and it ends with it, and all workers
with both: it adopts orphans, and when its agent is gone it kills whatever is left.
"""

from __future__ import annotations

import atexit
import gc
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from bftrain_elastic import tracebacks
from bftrain_elastic.messages import (
    LINE_LIMIT,
    Lines,
    Message,
    decode,
    encode,
    environment_of,
    text_of,
    texts_of,
    whole_of,
)
from bftrain_elastic.processes import adopt_orphans, children, descendants, die_with, end_family, kill, kill_session

# What a training script will import sooner or later, and what takes long
PRELOADED: Final = ("torch", "torch.distributed", "torch._dynamo", "torch.nn.parallel", "torch.optim")
# And what only the scripts of one launcher will: imported before the first of them is run
LATER: Final = {
    "horovod": ("horovod.torch", "horovod.torch.elastic"),
    "torchrun": ("torch.distributed.run",),
}
LAUNCHER: Final = "BFTRAIN_LAUNCHER"
_EMPTY: Final = 127  # what a shell says when it cannot find a command


class Nursery:
    """The loop around the agent's socket and the workers' ends."""

    def __init__(self, agent: socket.socket) -> None:
        self._agent = agent
        self._lines = Lines(LINE_LIMIT)
        self._workers: dict[int, str] = {}  # pid -> name
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self) -> None:
        """Serve the agent until it is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._agent, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._agent:
                        data = self._agent.recv(65536)
                        if not data:
                            return
                        self._lines.feed(data)
                        while (line := self._lines.next()) is not None:
                            self._do(decode(line))
                    else:
                        with suppress(BlockingIOError):
                            os.read(self._wake, 4096)
                        self._reap()

    def _do(self, message: Message) -> None:
        if message.get("do") == "spawn":
            self._spawn(message)
            return
        pid = whole_of(message, "pid")
        if pid not in self._workers:  # it is gone, and perhaps somebody else has its number now
            return
        number = whole_of(message, "signal")
        if number == signal.SIGKILL:
            for one in (pid, *descendants(pid)):
                kill(one)
        kill_session(pid, number)

    def _spawn(self, message: Message) -> None:
        worker = text_of(message, "worker")
        for module in LATER.get(environment_of(message, "env").get(LAUNCHER, ""), ()):
            with suppress(ImportError):  # the worker will say so
                import_module(module)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(message, parent)
        self._workers[pid] = worker
        self._tell({"say": "born", "worker": worker, "pid": pid})

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            worker = self._workers.pop(pid, None)
            if worker is not None:
                kill_session(pid)
                self._tell({"say": "died", "worker": worker, "code": os.waitstatus_to_exitcode(status)})
        self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Kill what dead workers left behind: adopted processes in nobody's session."""
        for pid in children(os.getpid()):
            with suppress(ProcessLookupError):
                if pid not in self._workers and os.getsid(pid) not in self._workers:
                    kill(pid)

    def _tell(self, message: Message) -> None:
        with suppress(OSError):  # the agent is gone: the loop will see it
            self._agent.sendall(encode(message) + b"\n")


def _become(message: Message, parent: int) -> NoReturn:
    """Be a worker: in the child, for ever."""
    code = 1
    try:
        die_with(parent)
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        _redirect(Path(text_of(message, "log")))
        os.environ.update(environment_of(message, "env"))
        os.chdir(text_of(message, "cwd"))
        argv = texts_of(message, "argv")
        # The agent's and the nursery's own descriptors are none of the worker's business
        os.closerange(3, 4096)
        if message.get("warm"):
            code = run_script(argv)
        else:
            os.execvpe(argv[0], argv, os.environ)  # noqa: S606 - a program and its arguments, no shell
    except OSError as error:
        sys.stderr.write(f"bftrain: cannot start: {error}\n")
        code = _EMPTY
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _redirect(log: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)


def run_script(argv: list[str]) -> int:
    """Run a script as ``python script.py`` would, and give its exit code."""
    sys.argv = argv
    sys.path[0] = str(Path(argv[0]).resolve().parent)
    try:
        if os.environ.get(LAUNCHER) == "horovod":
            from bftrain_elastic import horovod_worker

            horovod_worker.install()
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001 - whatever ends a script is shown, and ends the worker
        sys.stderr.write(tracebacks.of_script(error))
        return 1
    finally:
        with suppress(BaseException):
            atexit._run_exitfuncs()  # noqa: SLF001 - os._exit, which spares us the nursery's own end, would leave them out
    return 0


def main(arguments: list[str]) -> None:
    """Run a nursery: ``FD AGENT_PID DOOR MODULE...``, FD being its end of the socket to the agent.

    DOOR is the folder in which the agent lets workers in: if the agent was killed, it is left to us.
    """
    agent_pid = int(arguments[1])
    die_with(agent_pid)  # while we import there are no workers, and nobody reads the socket
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the agent's to answer
    adopt_orphans()
    agent = socket.socket(fileno=int(arguments[0]))
    # Whoever asks here whether there is CUDA must not start it: forks of a process that did cannot use it
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    missing = []
    for module in arguments[3:]:
        try:
            import_module(module)
        except ImportError as error:
            missing.append(f"{module}: {error}")
    gc.collect()
    gc.freeze()  # forks share the pages of all this, as long as nobody counts it through
    die_with(agent_pid, 0)
    agent.sendall(encode({"say": "warm", "missing": missing}) + b"\n")
    try:
        Nursery(agent).run()
    finally:
        end_family()
        if os.getppid() != agent_pid:
            shutil.rmtree(arguments[2], ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
