"""Give pending Slurm jobs the priorities of OStrich's order. Operators run it every minute: docs/how-to/schedule.md.

python ostrich_slurm.py STATE.json          # reads squeue, calls scontrol
python ostrich_slurm.py STATE.json --print  # shows the order instead
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

GAP_S = 600  # a job submitted later than this after the first one of its user's campaign starts a new campaign
SHARES: dict[str, float] = {}  # shares of users; 1 if not listed
MOST = 100  # number of jobs that get a priority; the rest wait behind them
Job = dict[str, Any]
State = dict[str, Any]

FIRST = 1_000_000  # the largest priority
SQUEUE = (
    "squeue",
    "-h",
    "-a",
    "-r",
    "-O",
    "JobID:20,UserName:64,SubmitTime:32,NumCPUs:16,TimeLimit:32,TimeUsed:32,State:32",
)


def seconds(text: str) -> int:
    """Read a time of Slurm: D-HH:MM:SS, HH:MM:SS or MM:SS; UNLIMITED counts as a week."""
    days, _, clock = text.rpartition("-")
    found = 86_400 * int(days or 0)
    for power, part in enumerate(reversed(clock.split(":") if clock[:1].isdigit() else ["168", "0", "0"])):
        found += int(part) * (1, 60, 3600)[power]
    return found


def jobs(text: str) -> Iterator[Job]:
    """Read the lines of squeue."""
    for line in text.splitlines():
        number, user, submit, cpus, limit, used, state = line.split()
        cost = {"cpus": int(cpus), "limit": seconds(limit), "used": seconds(used)}
        yield {"id": number, "user": user, "submit": float(submit), "runs": state == "RUNNING", **cost}


def advance(state: State, queue: Mapping[str, Job], now: float) -> None:
    """Bring the virtual schedule up to date: new jobs, jobs that have left, and the CPU time since the last call."""
    campaigns, known = state.setdefault("campaigns", []), state.setdefault("jobs", {})
    for campaign in campaigns:  # the unused part of a job's limit no longer counts as work
        for number in [number for number in campaign["jobs"] if number not in queue]:
            campaign["jobs"].remove(number)
            campaign["left"] = max(0.0, campaign["left"] - known.pop(number)["unused"])
    pour(campaigns, state.get("busy", 0) * (now - state.get("time", now)))
    for job in sorted(queue.values(), key=lambda job: job["submit"]):
        work = job["cpus"] * job["limit"]
        if job["id"] not in known:
            own = [each for each in campaigns if each["user"] == job["user"]]
            if not own or job["submit"] >= own[-1]["created"] + GAP_S:
                own = [{"user": job["user"], "created": job["submit"], "left": 0.0, "jobs": []}]
                campaigns += own
            own[-1]["jobs"].append(job["id"])
            own[-1]["left"] += work
        known[job["id"]] = {"unused": max(0, work - job["cpus"] * job["used"])}
    state["campaigns"] = [each for each in campaigns if each["jobs"] or each["left"] > 0]
    state["busy"], state["time"] = sum(job["cpus"] for job in queue.values() if job["runs"]), now


def pour(campaigns: list[dict[str, Any]], work: float) -> None:
    """Divide CPU time among users with virtual work, by shares; a user's part serves the oldest campaign first."""
    users = {each["user"] for each in campaigns if each["left"] > 0}
    total = sum(SHARES.get(user, 1.0) for user in users)
    for user in users:
        part = work * SHARES.get(user, 1.0) / total
        for campaign in (each for each in campaigns if each["user"] == user):
            given = min(part, campaign["left"])
            campaign["left"] -= given
            part -= given


def order(state: State, queue: Mapping[str, Job]) -> list[str]:
    """Return the pending jobs: campaigns by virtual finish time, and their jobs by limit."""
    ends: list[tuple[float, float, str, list[str]]] = []
    before: dict[str, float] = {}
    for campaign in state["campaigns"]:
        user = campaign["user"]
        before[user] = before.get(user, 0.0) + campaign["left"]
        ends.append((before[user] / SHARES.get(user, 1.0), campaign["created"], user, campaign["jobs"]))
    found: list[Job] = []
    for *_, numbers in sorted(ends):
        own = [queue[number] for number in numbers if number in queue and not queue[number]["runs"]]
        found += sorted(own, key=lambda job: (job["limit"], job["submit"]))
    return [job["id"] for job in found]


def main(path: Path, *, show: bool) -> None:
    """Read the state and the queue, and set priorities."""
    state: State = json.loads(path.read_text()) if path.exists() else {}
    times = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    shown = subprocess.run(SQUEUE, env=times, check=True, capture_output=True, text=True)  # noqa: S603 - no user input
    queue = {job["id"]: job for job in jobs(shown.stdout)}
    advance(state, queue, time.time())
    before, after = state.get("priorities", {}), {}
    for rank, number in enumerate(order(state, queue)[:MOST]):
        after[number] = FIRST - rank
        if show:
            sys.stdout.write(f"{number}\n")
        elif before.get(number) != after[number]:
            change = ("scontrol", "update", f"JobId={number}", f"Priority={after[number]}")
            subprocess.run(change, check=False)  # noqa: S603 - the job may have started
    state["priorities"] = before if show else after
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(state))
    draft.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), show="--print" in sys.argv)
