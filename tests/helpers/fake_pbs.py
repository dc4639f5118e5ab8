"""A PBS for tests: commands from qsub to qmgr that behave like the real ones, and jobs that really run.

What is printed, and with which exit code, is what OpenPBS 23 prints. The commands are small programs that ask a server
in this process. It starts jobs on nodes that are free, the main queue's first, and preempts those of the queue ``idle``
for them, by deleting (D), requeueing (R) or suspending (S), as a site may have it.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Self

from tests.helpers.fake_pbs_module import run_hook_text

_UNKNOWN_JOB: Final = 15001 % 256
_UNKNOWN_QUEUE: Final = 15018 % 256
_COMMANDS: Final = ("qsub", "qstat", "qdel", "qselect", "pbsnodes", "qmgr")
_MAIN: Final = "workq"  # the queue whose jobs preempt
_KILL_DELAY_S: Final = 5.0  # between the signals that end a job
_CLIENT: Final = """\
#!{python} -SE
import json, socket, sys
from pathlib import Path
name = Path(sys.argv[0]).name
line = socket.socket(socket.AF_UNIX)
try:
    line.connect("{socket}")
except OSError as error:
    sys.stderr.write("Connection refused\\n%s: cannot connect to server pbs (errno=111)\\n" % name)
    sys.exit(2)
stdin = sys.stdin.read() if name == "qsub" else ""
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


def attributes(job: Job) -> dict[str, Any]:
    over = job.code is not None
    substate = 91 if job.why else 10 if job.state == "Q" else 42 if not over else 92 if job.code == 0 else 93
    found: dict[str, Any] = {
        "Job_Name": job.name,
        "Job_Owner": f"{getpass.getuser()}@pbs",
        "job_state": job.state,
        "queue": job.queue,
        "server": "pbs",
        "Priority": job.priority,
        "substate": substate,
        "Resource_List": {"nodect": job.size, "place": "exclhost", "walltime": walltime(job)},
        "Variable_List": {"PBS_O_HOME": "/home/x", **job.variables, "PBS_O_QUEUE": job.queue},
        "mtime": time.ctime(job.ended or time.time()),
    }
    if job.started:
        found |= {
            "stime": time.ctime(job.started),
            "exec_host": "+".join(f"{node}/0*4" for node in job.nodes),
            "exec_vnode": "+".join(f"({node}:ncpus=4)" for node in job.nodes),
            "run_count": job.run_count,
        }
    if job.code is not None:
        found["Exit_status"] = job.code if job.code >= 0 else 256 - job.code
    return found


def walltime(job: Job) -> str:
    """Return the longest time of a job as PBS prints it."""
    return f"{job.seconds // 3600:02}:{job.seconds // 60 % 60:02}:{job.seconds % 60:02}"


class FakePbs:
    """The server; use it in a ``with`` block, with ``path`` before PATH. Each command is a method: ``_qsub``."""

    def __init__(self, *nodes: str, preempt: str = "D") -> None:
        self.nodes = list(nodes)
        self.preempt = preempt
        self.home = Path(tempfile.mkdtemp(prefix="bftrain-pbs-", dir="/tmp"))
        self.path = self.home / "bin"
        self.jobs: dict[str, Job] = {}
        self.asked: list[tuple[str, ...]] = []
        self.main_priority = 150
        self.hooks: list[Callable[[str, Job], None]] = []  # called with EXECJOB_BEGIN and so on
        self.hook_logs: list[str] = []  # of hooks that qmgr knows
        self._known_hooks: dict[str, dict[str, str]] = {}
        self._count = 0
        self._lock = threading.RLock()
        self._door: socket.socket | None = None
        self._end = threading.Event()
        self._loop = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self.path.mkdir()
        for name in _COMMANDS:
            program = self.path / name
            program.write_text(_CLIENT.format(python=sys.executable, socket=self.home / "server"))
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
            return self._accept(name="main", queue=_MAIN, script=script, size=size).id

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
        self, *, name: str, queue: str, script: str, size: int = 1, seconds: int = 3600, priority: int = 0
    ) -> Job:
        self._count += 1
        id_ = f"{self._count}.pbs"
        job = Job(id=id_, name=name, queue=queue, script=script, size=size, seconds=seconds, priority=priority)
        self.jobs[id_] = job
        return job

    def _schedule(self) -> None:
        waiting = [job for job in self.jobs.values() if job.state == "Q"]
        for job in sorted(waiting, key=lambda one: (one.queue == "idle", -one.priority, one.number)):
            lacking = job.size - len(self.free())
            if lacking > 0 and job.queue == _MAIN:
                ending = sum(len(one.nodes) for one in self.jobs.values() if one.state == "R" and one.why)
                for pilot in [one for one in self.jobs.values() if one.state == "R" and one.queue == "idle"]:
                    if lacking - ending > 0 and not pilot.why:
                        self._preempt(pilot)
                        lacking -= 1
            if len(self.free()) >= job.size:
                self._start(job)
            elif job.queue == _MAIN:
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
        (folder / "nodes").write_text("".join(f"{node}.site.org\n" for node in job.nodes))
        return {**job.variables, "PBS_NODEFILE": str(folder / "nodes"), "PBS_JOBID": job.id}

    def _cancel(self, job: Job) -> None:
        if job.state == "Q":
            job.why = "owner"
            self._over(job)
        else:
            job.state = "E" if job.state == "R" else job.state
            self._terminate(job, "owner")

    def _terminate(self, job: Job, why: str) -> None:
        if job.process is not None and not job.why:
            job.why, job.signals = why, [signal.SIGTERM, signal.SIGKILL]
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
                if job.why and time.monotonic() - job.signalled_at > _KILL_DELAY_S:
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

    def _tell(self, event: str, job: Job) -> None:
        for hook in self.hooks:
            hook(event, job)
        for known in self._known_hooks.values():
            if event.lower() in known["event"].split(","):
                vnodes = "+".join(f"({node}:ncpus=4)" for node in job.nodes)
                about = SimpleNamespace(id=job.id, exec_vnode=vnodes, run_count=job.run_count, queue=job.queue)
                self.hook_logs += run_hook_text(known["text"], event, about)

    def _qsub(self, words: list[str], script: str) -> Answer:
        given: dict[str, list[str]] = {}
        if "--" in words:  # a program in place of the script
            place = words.index("--")
            script, words = shlex.join(words[place + 1 :]), words[:place]
        for option, value in zip(words[::2], words[1::2], strict=True):
            given.setdefault(option, []).append(value)
        queue = given.get("-q", ["workq"])[0]
        if queue not in {"idle", "workq"}:
            return _UNKNOWN_QUEUE, "", "qsub: Unknown queue\n"
        longest = re.search(r"walltime=(\d+)", ",".join(given.get("-l", [])))
        job = self._accept(
            name=given.get("-N", ["STDIN"])[0],
            queue=queue,
            script=script,
            seconds=int(longest[1]) if longest else 3600,
            priority=int(given.get("-p", ["0"])[0]),
        )
        job.variables = dict(pair.split("=", 1) for pair in ",".join(given.get("-v", [])).split(",") if pair)
        return 0, f"{job.id}\n", ""

    def _qdel(self, words: list[str], _stdin: str) -> Answer:
        said = []
        for id_ in words:
            job = self.jobs.get(id_)
            if job is None:
                said.append(f"qdel: Unknown Job Id {id_}\n")
            elif job.state == "F":
                said.append(f"qdel: Job has finished {id_}\n")
            else:
                self._cancel(job)
        return (_UNKNOWN_JOB if said else 0), "", "".join(said)

    def _qselect(self, words: list[str], _stdin: str) -> Answer:
        found = [job for job in self.jobs.values() if job.state != "F"]
        if "-N" in words:
            found = [job for job in found if job.name == words[words.index("-N") + 1]]
        if "-tt.gt.197001020000" in words:
            return 0, "", ""  # it plans nothing
        if "-s" in words:
            found = [job for job in found if job.state in words[words.index("-s") + 1]]
        return 0, "".join(f"{job.id}\n" for job in found), ""

    def _qstat(self, words: list[str], _stdin: str) -> Answer:
        names = [word for word in words if not word.startswith("-") and word != "dsv"]
        if "-Q" in words:
            main = {"queue_type": "Execution", "Priority": self.main_priority, "enabled": "True", "started": "True"}
            limits = {"resources_max.walltime": "12:00:00", "max_run": "[u:PBS_GENERIC=500]"}
            idle = {"queue_type": "Execution", "Priority": 10, "enabled": "True", "started": "True"} | limits
            return 0, _print("Queue: ", {"workq": main, "idle": idle}), ""
        if names == ["idle"]:
            names = [job.id for job in self.of("Q", "R", "E", "S")]
        known = {id_: self.jobs[id_] for id_ in names if id_ in self.jobs}
        lost = [id_ for id_ in names if id_ not in self.jobs]
        over = [] if "-x" in words else [id_ for id_, job in known.items() if job.state == "F"]
        said = [f"qstat: Unknown Job Id {id_}\n" for id_ in lost]
        said += [f"qstat: {id_} Job has finished, use -x or -H to obtain historical job information\n" for id_ in over]
        shown = "".join(_in_one_line(job) for id_, job in known.items() if id_ not in over)
        return (_UNKNOWN_JOB if said else 0), shown, "".join(said)

    def _pbsnodes(self, _words: list[str], _stdin: str) -> Answer:
        free = set(self.free())
        shown = {
            node: {"Mom": f"{node}.site.org", "state": "free" if node in free else "job-exclusive"}
            | ({} if node in free else {"jobs": ["1.pbs/0"]})
            for node in self.nodes
        }
        return 0, _print("", shown), ""

    def _qmgr(self, words: list[str], _stdin: str) -> Answer:
        """Create, set and import hooks: a hook's text is copied, and it runs for its events as soon as it has one."""
        match shlex.split(words[1]):
            case ["list", "sched"]:
                order = {"preempt_queue_prio": 150, "preempt_prio": "express_queue, normal_jobs"}
                return 0, _print("Sched ", {"default": order | {"preempt_order": self.preempt}}), ""
            case ["create", "hook", name] if name not in self._known_hooks:
                self._known_hooks[name] = {"event": "", "text": ""}
            case ["set", "hook", name, "event" | "alarm" as attribute, "=", value] if name in self._known_hooks:
                self._known_hooks[name][attribute] = value
            case ["import", "hook", name, "application/x-python", "default", path] if name in self._known_hooks:
                self._known_hooks[name]["text"] = Path(path).read_text()
            case _:
                return 1, "", f"qmgr: Syntax error\nqmgr: {words[1]}\n"
        return 0, "", ""


def _print(head: str, shown: dict[str, dict[str, Any]]) -> str:
    said = ""
    for name, about in shown.items():
        pairs = ((key, ", ".join(value) if isinstance(value, list) else value) for key, value in about.items())
        said += f"{head}{name}\n" + "".join(f"    {key} = {value}\n" for key, value in pairs) + "\n"
    return said


def _in_one_line(job: Job) -> str:
    """Print a job as with ``-F dsv``."""
    about = attributes(job)
    about["Variable_List"] = ",".join(f"{key}={one}" for key, one in about["Variable_List"].items())
    cells = [f"Job Id: {job.id}"]
    for name, value in about.items():
        pairs = {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
        cells += [f"{key}={one}".replace("|", "\\|").replace("\n", "\\n") for key, one in pairs.items()]
    return "|".join(cells) + "\n"


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
