"""A PBS for tests: commands from qsub to qmgr that behave like the real ones, and jobs that really run.

The commands are small programs that ask a server in this process. It starts jobs on nodes that are free, the main
queue's first, and preempts those of the queue ``idle`` for them, by deleting, requeueing or suspending, as a site may
have it. What is printed, and with which exit code, is what OpenPBS 23 prints.
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

_CLIENT: Final = """\
#!{python} -SE
import json, socket, sys
from pathlib import Path
name = Path(sys.argv[0]).name
line = socket.socket(socket.AF_UNIX)
try:
    line.connect("{socket}")
except OSError as error:
    sys.stderr.write("Connection refused\\n%s: cannot connect to server pbs (errno=%d)\\n" % (name, error.errno or 111))
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
_COMMANDS: Final = ("qsub", "qstat", "qdel", "qselect", "pbsnodes", "qmgr")
_UNKNOWN_JOB: Final = 15001 % 256
_UNKNOWN_QUEUE: Final = 15018 % 256
_LIMIT: Final = 15148 % 256


@dataclass
class Job:
    """One job, as the server knows it."""

    id: str
    name: str
    queue: str
    script: str
    size: int
    walltime: str
    priority: int
    variables: dict[str, str]
    state: str = "Q"
    nodes: list[str] = field(default_factory=list)
    started: float = 0.0
    ended: float = 0.0
    exit_status: int | None = None
    substate: int = 10
    run_count: int = 0
    process: subprocess.Popen[bytes] | None = None
    deleted_at: float = 0.0  # when it was asked to end
    requeue: bool = False
    estimated: tuple[str, float] | None = None

    def attributes(self) -> dict[str, Any]:
        """Give what qstat prints of it."""
        found: dict[str, Any] = {
            "Job_Name": self.name,
            "Job_Owner": f"{getpass.getuser()}@pbs",
            "job_state": self.state,
            "queue": self.queue,
            "server": "pbs",
            "Priority": self.priority,
            "substate": self.substate,
            "Resource_List": {"nodect": self.size, "place": "exclhost", "walltime": self.walltime},
            "Variable_List": {"PBS_O_HOME": "/home/x", **self.variables, "PBS_O_QUEUE": self.queue},
            "mtime": time.ctime(self.ended or time.time()),
        }
        if self.started:
            found |= {
                "stime": time.ctime(self.started),
                "exec_host": "+".join(f"{node}/0*4" for node in self.nodes),
                "exec_vnode": "+".join(f"({node}:ncpus=4)" for node in self.nodes),
                "run_count": self.run_count,
            }
        if self.exit_status is not None:
            found["Exit_status"] = self.exit_status
        if self.estimated:
            found["estimated"] = {"exec_vnode": self.estimated[0], "start_time": time.ctime(self.estimated[1])}
        return found


class FakePbs:
    """The server; use it in a ``with`` block, with ``path`` before PATH. ``preempt`` is D, R or S."""

    def __init__(self, *nodes: str, preempt: str = "D", history: bool = True, knows_json: bool = True) -> None:
        self.nodes = list(nodes)
        self.preempt = preempt
        self.history = history
        self.knows_json = knows_json
        self.home = Path(tempfile.mkdtemp(prefix="bftrain-pbs-", dir="/tmp"))
        self.path = self.home / "bin"
        self.jobs: dict[str, Job] = {}
        self.most = 10_000  # jobs a user may have
        self.delay_s = 0.0  # before every answer
        self.kill_delay_s = 5.0
        self.hooks: list[Callable[[str, Job], None]] = []  # called with EXECJOB_BEGIN and so on
        self.asked: list[tuple[str, ...]] = []
        self.hook_logs: list[str] = []  # of hooks that qmgr knows
        self._known_hooks: dict[str, dict[str, str]] = {}
        self.enabled = True
        self._count = 0
        self._lock = threading.RLock()
        self._door: socket.socket | None = None
        self._end = threading.Event()
        self._loop = threading.Thread(target=self._run, daemon=True)

    # -- life

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
        """Let commands in."""
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

    # -- for tests

    def submit(self, script: str, size: int) -> str:
        """Hand in a job of the main queue."""
        with self._lock:
            code, out, _ = self._qsub(["-q", "workq", "-N", "main", "-l", f"nodes={size}"], script)
            assert code == 0
            return str(out).strip()

    def delete(self, id_: str) -> None:
        """Delete a job."""
        with self._lock:
            self._qdel([id_], "")

    def of(self, *states: str, queue: str = "idle") -> list[Job]:
        """Give the jobs of a queue in these states."""
        with self._lock:
            return [job for job in self.jobs.values() if job.state in states and job.queue == queue]

    def free(self) -> list[str]:
        """Name the nodes that no job holds."""
        held = {node for job in self.jobs.values() if job.state in "RE" for node in job.nodes}
        return [node for node in self.nodes if node not in held]

    # -- jobs

    def _schedule(self) -> None:
        waiting = [job for job in self.jobs.values() if job.state == "Q"]
        for job in sorted(waiting, key=lambda one: (one.queue == "idle", -one.priority, int(one.id.partition(".")[0]))):
            lacking = job.size - len(self.free())
            if lacking > 0 and job.queue == "workq":
                ending = sum(len(one.nodes) for one in self.jobs.values() if one.state == "R" and one.deleted_at)
                for pilot in [one for one in self.jobs.values() if one.state == "R" and one.queue == "idle"]:
                    if lacking - ending > 0 and not pilot.deleted_at:
                        self._preempt(pilot)
                        lacking -= 1
            if len(self.free()) >= job.size:
                self._start(job)
            elif job.queue == "workq":
                return  # nothing overtakes it

    def _preempt(self, job: Job) -> None:
        if self.preempt == "S":
            job.state = "S"
            assert job.process is not None
            _signal(job.process, signal.SIGSTOP)
        else:
            job.requeue = self.preempt == "R"
            self._terminate(job)

    def _start(self, job: Job) -> None:
        job.nodes, job.started = self.free()[: job.size], time.time()
        job.state, job.substate, job.run_count = "R", 42, job.run_count + 1
        folder = self.home / job.id
        folder.mkdir(exist_ok=True)
        (folder / "nodes").write_text("".join(f"{node}.site.org\n" for node in job.nodes))
        (folder / "script").write_text(job.script)
        env = {**os.environ, **job.variables, "PBS_NODEFILE": str(folder / "nodes"), "PBS_JOBID": job.id}
        self._tell("EXECJOB_BEGIN", job)
        null = subprocess.DEVNULL
        words = ["/bin/sh", str(folder / "script")]
        job.process = subprocess.Popen(words, env=env, stdin=null, stdout=null, stderr=null, start_new_session=True)

    def _terminate(self, job: Job) -> None:
        if job.process is not None and not job.deleted_at:
            job.deleted_at = time.monotonic()
            _signal(job.process, signal.SIGCONT)
            _signal(job.process, signal.SIGTERM)

    def _reap(self) -> None:
        for job in [*self.jobs.values()]:
            if job.process is None:
                continue
            code = job.process.poll()
            if code is None:
                if job.deleted_at and time.monotonic() - job.deleted_at > self.kill_delay_s:
                    _signal(job.process, signal.SIGKILL)
                continue
            job.process = None
            self._tell("EXECJOB_EPILOGUE", job)
            self._tell("EXECJOB_END", job)
            if job.requeue:
                job.state, job.substate, job.nodes, job.started = "Q", 10, [], 0.0
                job.requeue, job.deleted_at = False, 0.0
                continue
            job.exit_status = code if code >= 0 else 256 - code
            job.substate = 91 if job.deleted_at else 92 if code == 0 else 93
            self._over(job)

    def _over(self, job: Job) -> None:
        job.state, job.ended = "F", time.time()
        if not self.history:
            del self.jobs[job.id]

    def _tell(self, event: str, job: Job) -> None:
        for hook in self.hooks:
            hook(event, job)
        for known in self._known_hooks.values():
            if event.lower() in known["event"].split(","):
                vnodes = "+".join(f"({node}:ncpus=4)" for node in job.nodes)
                about = SimpleNamespace(id=job.id, exec_vnode=vnodes, run_count=job.run_count, queue=job.queue)
                self.hook_logs += run_hook_text(known["text"], event, about)

    # -- commands

    def _qsub(self, words: list[str], script: str) -> tuple[int, str, str]:
        given: dict[str, list[str]] = {}
        for option, value in zip(words[::2], words[1::2], strict=True):
            given.setdefault(option, []).append(value)
        queue = given.get("-q", ["workq"])[0]
        if queue not in {"idle", "workq"}:
            return _UNKNOWN_QUEUE, "", "qsub: Unknown queue\n"
        if not self.enabled:
            return 15007 % 256, "", "qsub: Unauthorized Request\n"
        if len([job for job in self.jobs.values() if job.state != "F"]) >= self.most:
            return _LIMIT, "", f"qsub: would exceed queue {queue}'s per-user limit of jobs in 'Q' state\n"
        lists = ",".join(given.get("-l", []))
        walltime = re.search(r"walltime=(\d+)", lists)
        seconds = int(walltime[1]) if walltime else 3600
        size = re.search(r"nodes=(\d+)", lists)
        self._count += 1
        id_ = f"{self._count}.pbs"
        variables = dict(pair.split("=", 1) for pair in ",".join(given.get("-v", [])).split(",") if pair)
        self.jobs[id_] = Job(
            id=id_,
            name=given.get("-N", ["STDIN"])[0],
            queue=queue,
            script=script,
            size=int(size[1]) if size else 1,
            walltime=f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}",
            priority=int(given.get("-p", ["0"])[0]),
            variables=variables,
        )
        return 0, f"{id_}\n", ""

    def _qdel(self, words: list[str], _stdin: str) -> tuple[int, str, str]:
        said = []
        for id_ in words:
            job = self.jobs.get(id_)
            if job is None:
                said.append(f"qdel: Unknown Job Id {id_}\n")
            elif job.state == "F":
                said.append(f"qdel: Job has finished {id_}\n")
            elif job.state == "Q":
                job.substate = 91
                self._over(job)
            else:
                job.state = "E" if job.state == "R" else job.state
                self._terminate(job)
        return (_UNKNOWN_JOB if said else 0), "", "".join(said)

    def _qselect(self, words: list[str], _stdin: str) -> tuple[int, str, str]:
        over = "-x" in words
        if over and not self.history:
            return 1, "", "qselect: PBS is not configured to maintain job history\n"
        found = [job for job in self.jobs.values() if over or job.state != "F"]
        if "-N" in words:
            found = [job for job in found if job.name == words[words.index("-N") + 1]]
        if "-s" in words:
            found = [job for job in found if job.state in words[words.index("-s") + 1]]
        return 0, "".join(f"{job.id}\n" for job in found), ""

    def _qstat(self, words: list[str], _stdin: str) -> tuple[int, str, str]:
        if "-F" in words and not self.knows_json:
            return 2, "", "qstat: invalid option -- 'F'\nusage: qstat [-f] [-x] [job_identifier...]\n"
        names = [word for word in words if not word.startswith("-") and word != "json"]
        if "-Q" in words:
            if names != ["idle"]:
                return _UNKNOWN_QUEUE, "", f"qstat: Unknown queue {names[0]}\n"
            about = {"queue_type": "Execution", "Priority": 10, "enabled": str(self.enabled), "started": "True"}
            about |= {"resources_max": {"walltime": "12:00:00"}, "max_run": "[u:PBS_GENERIC=500]"}  # type: ignore[dict-item]  # as JSON is
            return 0, self._print("Queue", {"idle": about}, words), ""
        known = {id_: self.jobs[id_] for id_ in names if id_ in self.jobs}
        lost = [id_ for id_ in names if id_ not in self.jobs]
        over = [] if "-x" in words else [id_ for id_, job in known.items() if job.state == "F"]
        said = [f"qstat: Unknown Job Id {id_}\n" for id_ in lost]
        said += [f"qstat: {id_} Job has finished, use -x or -H to obtain historical job information\n" for id_ in over]
        shown = {id_: job.attributes() for id_, job in known.items() if id_ not in over}
        return (_UNKNOWN_JOB if said else 0), self._print("Jobs", shown, words), "".join(said)

    def _pbsnodes(self, words: list[str], _stdin: str) -> tuple[int, str, str]:
        free = set(self.free())
        shown = {
            node: {"Mom": f"{node}.site.org", "state": "free" if node in free else "job-exclusive"}
            | ({} if node in free else {"jobs": ["1.pbs/0"]})
            for node in self.nodes
        }
        return 0, self._print("nodes", shown, words), ""

    def _qmgr(self, words: list[str], _stdin: str) -> tuple[int, str, str]:
        """Create, set and import hooks: a hook's text is copied, and it runs for its events as soon as it has one."""
        match shlex.split(words[1]):
            case ["create", "hook", name] if name not in self._known_hooks:
                self._known_hooks[name] = {"event": "", "text": ""}
            case ["set", "hook", name, "event" | "alarm" as attribute, "=", value] if name in self._known_hooks:
                self._known_hooks[name][attribute] = value
            case ["import", "hook", name, "application/x-python", "default", path] if name in self._known_hooks:
                self._known_hooks[name]["text"] = Path(path).read_text()
            case _:
                return 1, "", f"qmgr: Syntax error\nqmgr: {words[1]}\n"
        return 0, "", ""

    def _print(self, kind: str, shown: dict[str, dict[str, Any]], words: list[str]) -> str:
        if "-F" in words:
            return json.dumps(
                {"timestamp": int(time.time()), "pbs_version": "23.06.06", "pbs_server": "pbs", kind: shown}
            )
        head = {"Jobs": "Job Id: ", "Queue": "Queue: ", "nodes": ""}[kind]
        return "".join(f"{head}{name}\n{_plain(about)}\n" for name, about in shown.items())


def _plain(about: dict[str, Any]) -> str:
    """Print attributes as lines, those that are too long broken in the middle."""
    lines = []
    for name, value in about.items():
        if name == "Variable_List":
            text = f"    {name} = " + ",".join(f"{key}={one}" for key, one in value.items())
            lines += [text[:60], *(f"\t{text[at : at + 60]}" for at in range(60, len(text), 60))]
        elif isinstance(value, dict):
            lines += [f"    {name}.{key} = {one}" for key, one in value.items()]
        else:
            lines.append(f"    {name} = {', '.join(value) if isinstance(value, list) else value}")
    return "\n".join(lines) + "\n"


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
