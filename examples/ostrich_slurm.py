"""Give pending Slurm jobs the priorities of OStrich's order. Run it as an operator every minute: docs/schedule.md.

python ostrich_slurm.py STATE.json          # reads squeue, calls scontrol
python ostrich_slurm.py STATE.json --print  # shows the order instead
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

GAP_S = 600  # a job submitted later than this after the first of its user's campaign begins a new one
SHARES: dict[str, float] = {}  # by user; 1 if not listed
MOST = 100  # jobs that get a priority; the others wait behind them
FIRST = 1_000_000  # the largest priority
SQUEUE = (
    "squeue",
    "-h",
    "-a",
    "-r",
    "-O",
    "JobID:20,UserName:64,SubmitTime:32,NumCPUs:16,TimeLimit:32,TimeUsed:32,State:32",
)


def seconds(text):
    """Read a time of Slurm: D-HH:MM:SS, HH:MM:SS or MM:SS; UNLIMITED counts as a week."""
    days, _, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")] if clock[:1].isdigit() else [168, 0, 0]
    return 86_400 * int(days or 0) + sum(part * 60**power for power, part in enumerate(reversed(parts)))


def jobs(text):
    """Read the lines of squeue."""
    for line in text.splitlines():
        number, user, submit, cpus, limit, used, state = line.split()
        cost = {"cpus": int(cpus), "limit": seconds(limit), "used": seconds(used)}
        yield {"id": number, "user": user, "submit": float(submit), "runs": state == "RUNNING", **cost}


def advance(state, queue, now):
    """Bring the virtual schedule up to date: new jobs, jobs that have left, and the CPU time since the last call."""
    campaigns, known = state.setdefault("campaigns", []), state.setdefault("jobs", {})
    for campaign in campaigns:  # what a job did not use of its limit is no work any more
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


def pour(campaigns, work):
    """Divide CPU time among all users with virtual work, by shares; each user's part goes to the oldest campaign first."""
    users = {each["user"] for each in campaigns if each["left"] > 0}
    total = sum(SHARES.get(user, 1.0) for user in users)
    for user in users:
        part = work * SHARES.get(user, 1.0) / total
        for campaign in (each for each in campaigns if each["user"] == user):
            given = min(part, campaign["left"])
            campaign["left"] -= given
            part -= given


def order(state, queue):
    """Return the pending jobs: campaigns by virtual end, the jobs of one by limit."""
    ends, before = [], {}
    for campaign in state["campaigns"]:
        user = campaign["user"]
        before[user] = before.get(user, 0.0) + campaign["left"]
        ends.append((before[user] / SHARES.get(user, 1.0), campaign["created"], user, campaign["jobs"]))
    found = []
    for *_, numbers in sorted(ends):
        own = [queue[number] for number in numbers if number in queue and not queue[number]["runs"]]
        found += sorted(own, key=lambda job: (job["limit"], job["submit"]))
    return [job["id"] for job in found]


def main(path, *, show):
    """Read the state and the queue, and set priorities."""
    state = json.loads(path.read_text()) if path.exists() else {}
    text = subprocess.run(
        SQUEUE, env={**os.environ, "SLURM_TIME_FORMAT": "%s"}, check=True, capture_output=True, text=True
    ).stdout
    queue = {job["id"]: job for job in jobs(text)}
    advance(state, queue, time.time())
    for rank, number in enumerate(order(state, queue)[:MOST]):
        if show:
            print(number)
        elif state["priorities"].get(number) != rank if "priorities" in state else True:
            subprocess.run(("scontrol", "update", f"JobId={number}", f"Priority={FIRST - rank}"), check=False)
        state.setdefault("priorities", {})[number] = rank
    state["priorities"] = {number: rank for number, rank in state.get("priorities", {}).items() if number in queue}
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(state))
    draft.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), show="--print" in sys.argv)
