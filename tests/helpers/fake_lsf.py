"""An LSF for tests: commands from bsub to brsvs that print what the documentation of LSF 10.1 shows, and real jobs.

No real LSF was at hand: what a real one prints should be compared with this.
"""

from __future__ import annotations

import getpass
import json
import re
import signal
import time
from pathlib import Path

from tests.helpers.fake_batch import Answer, FakeBatch, Job

_ERROR = 255
_SLOTS = 16  # of each host
QUEUES = """\

QUEUE: normal
  -- The main queue. Its jobs are never PREEMPTABLE.

PARAMETERS/STATISTICS
PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS
 30    0  Open:Active       -    -    -    -     0     0     0     0     0    0     0
Interval for a host to accept two jobs is 0 seconds

SCHEDULING POLICIES:  FAIRSHARE EXCLUSIVE
USERS: all
HOSTS:  all

-------------------------------------------------------------------------------

QUEUE: idle
  -- Jobs that make room for others.

PARAMETERS/STATISTICS
PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS
  1   10  {status:14}    -  500    -    -     0     0     0     0     0    0     0
Interval for a host to accept two jobs is 0 seconds

DEFAULT LIMITS:
 RUNLIMIT
 30.0 min

MAXIMUM LIMITS:
 RUNLIMIT
 720.0 min

SCHEDULING PARAMETERS
           r15s   r1m  r15m   ut      pg    io   ls    it    tmp    swp    mem
 loadSched   -     -     -     -       -     -    -     -     -      -      -
 loadStop    -     -     -     -       -     -    -     -     -      -      -

SCHEDULING POLICIES:  {policies}
USERS: all
HOSTS:  compute/
{controls}"""
PARAMETERS = """\
lsb.params configuration at Thu Nov 26 10:00:00 2026
    MBD_SLEEP_TIME = 10
    PREEMPT_JOBTYPE = EXCLUSIVE
    MAX_USER_PRIORITY = 100
    JOB_TERMINATE_INTERVAL = 10
"""
_CONTROLS = {"D": "TERMINATE_WHEN:  PREEMPT\n", "R": "JOB_CONTROLS:\n    SUSPEND:  brequeue $LSB_JOBID\n", "S": ""}


class FakeLsf(FakeBatch):
    """The server. ``preempt`` is D (TERMINATE_WHEN=PREEMPT), R (brequeue) or S."""

    name = "lsf"
    commands = ("bsub", "bjobs", "bkill", "bqueues", "bparams", "bhosts", "brsvs")
    submits = "bsub"
    main = "normal"
    down = "Cannot connect to LSF. Please wait ..."
    down_code = _ERROR
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)

    def __init__(self, *nodes: str, preempt: str = "D") -> None:
        super().__init__(*nodes, preempt=preempt)
        self.policies = "PREEMPTABLE EXCLUSIVE"
        self.parameters = PARAMETERS
        self.reservations = ""

    def _variables(self, job: Job, _folder: Path) -> dict[str, str]:
        return {"LSB_JOBID": job.id, "LSB_HOSTS": " ".join(job.nodes), "LSB_QUEUE": job.queue}

    def _bsub(self, words: list[str], script: str) -> Answer:
        given = {word: value for word, value in zip(words, [*words[1:], ""], strict=True) if word.startswith("-")}
        queue = given.get("-q", self.main)
        problem = ""
        if queue not in {"idle", self.main}:
            problem = f"{queue}: No such queue. Job not submitted."
        elif not self.enabled:
            problem = f"{queue}: Queue has been closed. Job not submitted."
        elif len([job for job in self.jobs.values() if job.state != "F"]) >= self.most:
            problem = f"User <{getpass.getuser()}>: Pending job threshold reached. Retrying in 60 seconds..."
        elif "-sp" in given and "MAX_USER_PRIORITY" not in self.parameters:
            problem = "User priority is not enabled. Job not submitted."
        if problem:
            return _ERROR, "", problem + "\n"
        job = self._accept(
            name=given["-J"],
            queue=queue,
            script=script,
            seconds=60 * int(given["-W"]),
            priority=int(given.get("-sp", "50")),
            mark=given.get("-Jd", ""),
        )
        return 0, f"Job <{job.id}> is submitted to queue <{queue}>.\n", ""

    def _bkill(self, words: list[str], _stdin: str) -> Answer:
        said, killed = "", ""
        for id_ in words:
            job = self.jobs.get(id_)
            if job is None:
                said += f"Job <{id_}>: No matching job found\n"
            elif job.state == "F":
                said += f"Job <{id_}>: Job has already finished\n"
            else:
                self._cancel(job)
                killed += f"Job <{id_}> is being terminated\n"
        return (_ERROR if said else 0), killed, said

    def _bjobs(self, words: list[str], _stdin: str) -> Answer:
        name = words[words.index("-J") + 1]
        found = [job for job in self.jobs.values() if job.name == name and (job.state != "F" or "-a" in words)]
        if not found:
            return _ERROR, "", f"Job <{name}> is not found\n"
        columns = words[words.index("-o") + 1].upper().split()
        records = [{column: record(job).get(column, "") for column in columns} for job in found]
        return 0, json.dumps({"COMMAND": "bjobs", "JOBS": len(records), "RECORDS": records}, indent=2), ""

    def _bqueues(self, _words: list[str], _stdin: str) -> Answer:
        status = "Open:Active" if self.enabled else "Closed:Active"
        return 0, QUEUES.format(status=status, policies=self.policies, controls=_CONTROLS[self.preempt]), ""

    def _bparams(self, _words: list[str], _stdin: str) -> Answer:
        return 0, self.parameters, ""

    def _bhosts(self, words: list[str], _stdin: str) -> Answer:
        assert words == ["-w", "compute"]
        free = set(self.free())
        rows = [("HOST_NAME", "STATUS", "JL/U", "MAX", "NJOBS", "RUN", "SSUSP", "USUSP", "RSV")]
        for node in self.nodes:
            status, jobs = ("ok", "0") if node in free else ("closed_Excl", str(_SLOTS))
            rows.append((node, status, "-", str(_SLOTS), jobs, jobs, "0", "0", "0"))
        return 0, "".join(" ".join(f"{cell:<14}" for cell in row) + "\n" for row in rows), ""

    def _brsvs(self, _words: list[str], _stdin: str) -> Answer:
        return (0, self.reservations, "") if self.reservations else (_ERROR, "", "No reservation found\n")


def record(job: Job) -> dict[str, str]:
    over = job.state == "F"
    state = {"Q": "PEND", "S": "SSUSP"}.get(job.state, "RUN")
    code = 0 if job.code is None else job.code if job.code >= 0 else 128 - job.code
    found = {
        "JOBID": job.id,
        "STAT": ("EXIT" if job.why or code else "DONE") if over else state,
        "JOB_DESCRIPTION": job.mark,
        "RUNTIMELIMIT": f"{job.seconds / 60:.1f}",
    }
    if job.started:
        ran = (job.ended if over else time.time()) - job.started
        found |= {"EXEC_HOST": ":".join(job.nodes), "RUN_TIME": f"{int(ran)} second(s)"}
        found["START_TIME"] = re.sub(r":\d\d \d{4}$", "", time.ctime(job.started)[4:])
    if over:
        found |= {"EXIT_CODE": str(code or ""), "EXIT_REASON": _REASONS.get(job.why, "")}
    return found


_REASONS = {"preempt": "TERM_PREEMPT: job killed after preemption", "owner": "TERM_OWNER: job killed by owner"}
