"""A PBS for tests: commands from qsub to qmgr that behave like the real ones, and jobs that really run.

What is printed, and with which exit code, is what OpenPBS 23 prints.
"""

from __future__ import annotations

import getpass
import json
import re
import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from tests.helpers.fake_batch import Answer, FakeBatch, Job
from tests.helpers.fake_pbs_module import run_hook_text

_UNKNOWN_JOB: Final = 15001 % 256
_UNKNOWN_QUEUE: Final = 15018 % 256
_LIMIT: Final = 15148 % 256


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


class FakePbs(FakeBatch):
    """The server. ``preempt`` is D, R or S."""

    name = "pbs"
    commands = ("qsub", "qstat", "qdel", "qselect", "pbsnodes", "qmgr")
    submits = "qsub"
    main = "workq"
    down = "Connection refused\\n{name}: cannot connect to server pbs (errno=111)"
    down_code = 2
    suffix = ".pbs"
    signals = (signal.SIGTERM, signal.SIGKILL)

    def __init__(self, *nodes: str, preempt: str = "D", history: bool = True) -> None:
        super().__init__(*nodes, preempt=preempt)
        self.history = history
        self.main_priority = 150
        self.hooks: list[Callable[[str, Job], None]] = []  # called with EXECJOB_BEGIN and so on
        self.hook_logs: list[str] = []  # of hooks that qmgr knows
        self._known_hooks: dict[str, dict[str, str]] = {}

    def _variables(self, job: Job, folder: Path) -> dict[str, str]:
        (folder / "nodes").write_text("".join(f"{node}.site.org\n" for node in job.nodes))
        return {**job.variables, "PBS_NODEFILE": str(folder / "nodes"), "PBS_JOBID": job.id}

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
        if not self.enabled:
            return 15021 % 256, "", "qsub: Queue is not enabled\n"
        if len([job for job in self.jobs.values() if job.state != "F"]) >= self.most:
            return _LIMIT, "", f"qsub: would exceed queue {queue}'s per-user limit of jobs in 'Q' state\n"
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
        over = "-x" in words
        if over and not self.history:
            return 0, "", "qselect: PBS is not configured to maintain job history\n"  # as the real one: no error
        found = [job for job in self.jobs.values() if over or job.state != "F"]
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
            idle = {"queue_type": "Execution", "Priority": 10, "enabled": self.enabled, "started": "True"} | limits
            return 0, _print("Queue: ", {"workq": main, "idle": idle}), ""
        if "-x" in words and not self.history:
            said = [f"qstat: PBS is not configured to maintain job history {id_}\n" for id_ in names]
            return 0, "", "".join(said)
        if names == ["idle"]:
            names = [job.id for job in self.of("Q", "R", "E", "S")]
        known = {id_: self.jobs[id_] for id_ in names if id_ in self.jobs}
        lost = [id_ for id_ in names if id_ not in self.jobs]
        over = [] if "-x" in words else [id_ for id_, job in known.items() if job.state == "F"]
        said = [f"qstat: Unknown Job Id {id_}\n" for id_ in lost]
        said += [f"qstat: {id_} Job has finished, use -x or -H to obtain historical job information\n" for id_ in over]
        shown = "".join(_in_one_line(job) for id_, job in known.items() if id_ not in over)
        return (_UNKNOWN_JOB if said else 0), shown, "".join(said)

    def _pbsnodes(self, words: list[str], _stdin: str) -> Answer:
        free = set(self.free())
        shown = {
            node: {"Mom": f"{node}.site.org", "state": "free" if node in free else "job-exclusive"}
            | ({} if node in free else {"jobs": ["1.pbs/0"]})
            for node in self.nodes
        }
        if "-F" in words:
            return 0, json.dumps({"timestamp": int(time.time()), "pbs_version": "23.06.06", "nodes": shown}), ""
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
