"""A batch scheduler for tests, without its commands: a server in this process, and jobs that really run.

The commands are small programs that ask the server. It starts jobs on nodes that are free, the main queue's first, and
preempts those of the queue ``idle`` for them, by deleting (D), requeueing (R) or suspending (S), as a site may have it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Self

_CLIENT: Final = """\
#!{python} -SE
import json, socket, sys
from pathlib import Path
name = Path(sys.argv[0]).name
line = socket.socket(socket.AF_UNIX)
try:
    line.connect("{socket}")
except OSError as error:
    sys.stderr.write("{down}\\n")
    sys.exit({down_code})
stdin = sys.stdin.read() if name == "{submits}" else ""
with line.makefile("rw") as both:
    both.write(json.dumps([name, sys.argv[1:], stdin]) + "\\n")
    both.flush()
    code, out, err = json.loads(both.readline())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""
Answer = tuple[int, str, str]
"""Exit code, and what is printed to stdout and stderr."""


@dataclass
class Job:
    """One job, as the server knows it. States: Q waits, R runs, E is ending, S is suspended, F is over."""

    id: str
    name: str
    queue: str
    script: str
    size: int
    seconds: int
    priority: int
    mark: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    state: str = "Q"
    nodes: list[str] = field(default_factory=list)
    started: float = 0.0
    ended: float = 0.0
    code: int | None = None  # of its process; negative for a signal
    run_count: int = 0
    process: subprocess.Popen[bytes] | None = None
    signalled_at: float = 0.0  # when it was last asked to end
    signals: list[int] = field(default_factory=list)  # that are still to come
    why: str = ""  # it was asked to end
    requeue: bool = False

    @property
    def number(self) -> int:
        return int(self.id.partition(".")[0])


class FakeBatch:
    """The server; use it in a ``with`` block, with ``path`` before PATH. Each command is a method: ``_qsub``."""

    name: ClassVar[str]
    commands: ClassVar[Sequence[str]]
    submits: ClassVar[str]  # the command that reads a script
    main: ClassVar[str]  # the queue whose jobs preempt
    down: ClassVar[str]  # what a command says that finds no server
    down_code: ClassVar[int]
    suffix: ClassVar[str] = ""  # of the ids of jobs
    signals: ClassVar[Sequence[int]]  # that end a job, one after the other

    def __init__(self, *nodes: str, preempt: str = "D") -> None:
        self.nodes = list(nodes)
        self.preempt = preempt
        self.home = Path(tempfile.mkdtemp(prefix=f"bftrain-{self.name}-", dir="/tmp"))
        self.path = self.home / "bin"
        self.jobs: dict[str, Job] = {}
        self.most = 10_000  # jobs a user may have
        self.delay_s = 0.0  # before every answer
        self.kill_delay_s = 5.0  # between the signals that end a job
        self.enabled = True
        self.history = True  # whether jobs that are over are remembered
        self.asked: list[tuple[str, ...]] = []
        self._count = 0
        self._lock = threading.RLock()
        self._door: socket.socket | None = None
        self._end = threading.Event()
        self._loop = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self.path.mkdir()
        for name in self.commands:
            program = self.path / name
            text = _CLIENT.format(
                python=sys.executable,
                socket=self.home / "server",
                down=self.down.format(name=name),
                down_code=self.down_code,
                submits=self.submits,
            )
            program.write_text(text)
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.open()
        self._loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._loop.join()
        self.shut()
        with self._lock:
            for job in self.jobs.values():
                if job.process is not None and job.process.poll() is None:
                    _signal(job.process, signal.SIGCONT)
                    _signal(job.process, signal.SIGKILL)
                    job.process.wait()
        subprocess.run(["rm", "-r", str(self.home)], check=True)

    def open(self) -> None:
        door = socket.socket(socket.AF_UNIX)
        door.bind(str(self.home / "server"))
        door.listen(64)
        self._door = door
        threading.Thread(target=self._serve, args=(door,), daemon=True).start()

    def shut(self) -> None:
        """Let no command in, as when the server is down; jobs go on."""
        if self._door is not None:
            with suppress(OSError):
                self._door.shutdown(socket.SHUT_RDWR)
            self._door.close()
            self._door = None
            (self.home / "server").unlink()

    def _serve(self, door: socket.socket) -> None:
        while True:
            try:
                line, _ = door.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(line,), daemon=True).start()

    def answer(self, line: socket.socket) -> None:
        """Carry out the command of a connection, which may be gone before it has its answer."""
        # Outermost: what is not sent yet is sent when the file is closed, and the command may be gone by then
        with suppress(OSError), line, line.makefile("rw") as both:
            given = both.readline()
            if not given:
                return
            name, words, stdin = json.loads(given)
            time.sleep(self.delay_s)
            with self._lock:
                self.asked.append((name, *words))
                answer = getattr(self, f"_{name}")(words, stdin)
            both.write(json.dumps(answer) + "\n")
            both.flush()

    def _run(self) -> None:
        while not self._end.wait(0.02):
            with self._lock:
                self._reap()
                self._schedule()

    def submit(self, script: str, size: int) -> str:
        with self._lock:
            return self._accept(name="main", queue=self.main, script=script, size=size).id

    def delete(self, id_: str) -> None:
        with self._lock:
            self._cancel(self.jobs[id_])

    def of(self, *states: str, queue: str = "idle") -> list[Job]:
        with self._lock:
            return [job for job in self.jobs.values() if job.state in states and job.queue == queue]

    def free(self) -> list[str]:
        """Name the nodes that no job holds."""
        held = {node for job in self.jobs.values() if job.state in "RE" for node in job.nodes}
        return [node for node in self.nodes if node not in held]

    def _accept(
        self,
        *,
        name: str,
        queue: str,
        script: str,
        size: int = 1,
        seconds: int = 3600,
        priority: int = 0,
        mark: str = "",
    ) -> Job:
        self._count += 1
        id_ = f"{self._count}{self.suffix}"
        job = Job(
            id=id_, name=name, queue=queue, script=script, size=size, seconds=seconds, priority=priority, mark=mark
        )
        self.jobs[id_] = job
        return job

    def _schedule(self) -> None:
        waiting = [job for job in self.jobs.values() if job.state == "Q"]
        for job in sorted(waiting, key=lambda one: (one.queue == "idle", -one.priority, one.number)):
            lacking = job.size - len(self.free())
            if lacking > 0 and job.queue == self.main:
                ending = sum(len(one.nodes) for one in self.jobs.values() if one.state == "R" and one.why)
                for pilot in [one for one in self.jobs.values() if one.state == "R" and one.queue == "idle"]:
                    if lacking - ending > 0 and not pilot.why:
                        self._preempt(pilot)
                        lacking -= 1
            if len(self.free()) >= job.size:
                self._start(job)
            elif job.queue == self.main:
                return  # nothing overtakes it

    def _preempt(self, job: Job) -> None:
        if self.preempt == "S":
            job.state = "S"
            assert job.process is not None
            _signal(job.process, signal.SIGSTOP)
        else:
            job.requeue = self.preempt == "R"
            self._terminate(job, "preempt")

    def _start(self, job: Job) -> None:
        job.nodes, job.started = self.free()[: job.size], time.time()
        job.state, job.run_count = "R", job.run_count + 1
        folder = self.home / job.id
        folder.mkdir(exist_ok=True)
        (folder / "script").write_text(job.script)
        env = {**os.environ, **self._variables(job, folder)}
        self._tell("EXECJOB_BEGIN", job)
        null = subprocess.DEVNULL
        words = ["/bin/sh", str(folder / "script")]
        job.process = subprocess.Popen(words, env=env, stdin=null, stdout=null, stderr=null, start_new_session=True)

    def _variables(self, job: Job, folder: Path) -> dict[str, str]:
        """Give the environment of a job; it may have files in a folder."""
        raise NotImplementedError

    def _cancel(self, job: Job) -> None:
        if job.state == "Q":
            job.why = "owner"
            self._over(job)
        else:
            job.state = "E" if job.state == "R" else job.state
            self._terminate(job, "owner")

    def _terminate(self, job: Job, why: str) -> None:
        if job.process is not None and not job.why:
            job.why, job.signals = why, list(self.signals)
            _signal(job.process, signal.SIGCONT)
            self._signal_next(job)

    def _signal_next(self, job: Job) -> None:
        if job.signals and job.process is not None:
            job.signalled_at = time.monotonic()
            _signal(job.process, job.signals.pop(0))

    def _reap(self) -> None:
        for job in [*self.jobs.values()]:
            if job.process is None:
                continue
            code = job.process.poll()
            if code is None:
                if job.why and time.monotonic() - job.signalled_at > self.kill_delay_s:
                    self._signal_next(job)
                continue
            job.process = None
            self._tell("EXECJOB_EPILOGUE", job)
            self._tell("EXECJOB_END", job)
            if job.requeue:
                job.state, job.nodes, job.started, job.requeue, job.why = "Q", [], 0.0, False, ""
                continue
            job.code = code
            self._over(job)

    def _over(self, job: Job) -> None:
        job.state, job.ended = "F", time.time()
        if not self.history:
            del self.jobs[job.id]

    def _tell(self, event: str, job: Job) -> None:
        """Receive what happens to a job."""


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
