"""Lines that Slurm and PBS write about jobs and nodes, of our own making. Times are seconds UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def poll(time: float, *rows: str) -> str:
    """Write a poll of sinfo: a rule, the time, a header and rows."""
    when = f"t: {datetime.fromtimestamp(time, UTC):%a %b %e %H:%M:%S UTC %Y}"
    return "\n".join(["#" * 40, when, "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST", *rows]) + "\n"


def shown(state: str, nodes: str, partition: str = "main*") -> str:
    return f"{partition}      up   infinite     10  {state:>5} {nodes}"


def pbs(kind: str, job: object, time_s: float, **values: object) -> str:
    """Write a record of PBS accounting; the server's clock is UTC."""
    texts = {"user": "ann", "group": "staff", "account": '"A B"', "jobname": "STDIN", "queue": "workq", **values}
    words = " ".join(f"{key.replace('__', '.')}={value}" for key, value in texts.items() if value is not None)
    return f"{datetime.fromtimestamp(time_s, UTC):%m/%d/%Y %H:%M:%S};{kind};{job};{words}\n"


def pbs_start(job: object, start: float, hosts: str, **values: object) -> str:
    return pbs("S", job, start, start=start, exec_host=hosts, **values)


def pbs_end(job: object, start: float, end: float, hosts: str, **values: object) -> str:
    return pbs("E", job, end, start=start, exec_host=hosts, session=1, end=end, Exit_status=0, **values)


def pbs_logged(time_s: float, node: str, text: str) -> str:
    """Write a line of the log of a PBS server, whose clock is UTC."""
    return f"{datetime.fromtimestamp(time_s, UTC):%m/%d/%Y %H:%M:%S.%f};0004;Server@s;Node;{node};{text}\n"
