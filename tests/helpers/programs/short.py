"""Do a few steps and end with 0, as a command does that keeps nothing: run twice, it does its work twice.

Each rank notes its begin and its end. At its begin it looks whether another process of the same rank still lives.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from record import Record

from bftrain_elastic import finish, report

SAMPLES = 7


def begun(pid: int) -> str:
    """Return when a process began, in ticks since the machine did; "" if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", required=True)
    parser.add_argument("--steps", type=int, required=True)
    given = parser.parse_args()
    rank = os.environ.get("RANK", "0")
    record = Record(given.record)
    record.write("start", rank=rank, begun=begun(os.getpid()), workers=os.environ.get("WORLD_SIZE", "1"))
    lines = [json.loads(line) for line in Path(given.record, "record").read_text().splitlines()]
    for line in lines:
        same = line["what"] == "start" and line["rank"] == rank and line["pid"] != os.getpid()
        if same and line["begun"] and begun(line["pid"]) == line["begun"]:
            record.write("double", rank=rank, other=line["pid"])
    for step in range(1, given.steps + 1):
        time.sleep(0.02)
        report(samples=SAMPLES, step=step, loss=1 / step)
    if given.steps % 2:  # the others are believed for their exit code alone
        finish()
    record.write("end", rank=rank)
    os._exit(0)  # an order to stop that comes while Python takes its time to end would kill what has noted its end


main()
