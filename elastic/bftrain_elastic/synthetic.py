"""A program that counts samples at given speeds instead of training, and saves its count like a checkpoint.

``bftrain submit --trace`` runs it for each task of a trace, with one argument in JSON: ``work`` in samples, and
``speeds`` in samples/s by kind of node ("" for any other) and number of workers.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from pathlib import Path

from bftrain_elastic.worker.progress_report import finish, report

_TICK_S = 0.05
_SAVE_S = 1.0


def main(text: str) -> None:
    """Count samples until all work is done or SIGTERM arrives."""
    order = json.loads(text)
    speeds, work = order["speeds"], order["work"]
    speed = speeds.get(os.environ.get("BFTRAIN_KIND", ""), speeds.get(""))[os.environ["WORLD_SIZE"]]
    saved = Path(os.environ["BFTRAIN_FOLDER"], "samples")
    first = os.environ["RANK"] == "0"
    start = done = float(saved.read_text()) if saved.exists() else 0.0
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    begin_s, reported, saved_s = time.monotonic(), int(done), 0.0
    while done < work and not stopping:
        time.sleep(min(_TICK_S, (work - done) / speed))
        now_s = time.monotonic()
        done = min(work, start + (now_s - begin_s) * speed)
        whole = math.ceil(done) if done >= work else int(done)
        if whole > reported:
            report(samples=whole - reported, step=whole)
            reported = whole
        if first and now_s - saved_s > _SAVE_S:
            _save(saved, done)
            saved_s = now_s
    if first:
        _save(saved, done)
        if done >= work:
            finish()


def _save(path: Path, done: float) -> None:
    new = path.with_suffix(".new")
    new.write_text(repr(done))
    new.replace(path)


if __name__ == "__main__":
    main(sys.argv[1])
