"""A program that trains at a given speed on each node, and saves its samples on SIGTERM.

Arguments: RECORD WORK NODE=SPEED ... Each run adds a line to RECORD: the samples at its start and at its end. It is
also finished when there is a file "enough" beside RECORD. A second process of the task records that, and fails.
"""

import fcntl
import os
import signal
import sys
import time
from pathlib import Path

from bftrain_elastic import finish, report

record, work, *given = sys.argv[1:]
speed = float(dict(each.split("=") for each in given)[os.environ["BFTRAIN_NODE"]])
saved = Path(os.environ["BFTRAIN_FOLDER"], "samples")
alone = saved.with_name("alone").open("w")
try:
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    with Path(record).open("a") as lines:
        lines.write("it runs twice\n")
    raise
enough = Path(record).with_name("enough")
start = done = float(saved.read_text()) if saved.exists() else 0.0
stopping: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
before_s, reported = time.monotonic(), int(done)
while done < float(work) and not stopping and not enough.exists():
    time.sleep(0.05)
    now_s = time.monotonic()
    done, before_s = done + (now_s - before_s) * speed, now_s
    if int(done) > reported:
        report(samples=int(done) - reported, step=int(done))
        reported = int(done)
new = saved.with_suffix(".new")
new.write_text(str(done))
new.replace(saved)
with Path(record).open("a") as lines:
    lines.write(f"{start} {done}\n")
if done >= float(work) or (enough.exists() and not stopping):
    finish()
