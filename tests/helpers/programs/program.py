"""Count steps as any program does that knows nothing of bftrain but report(): it saves on SIGTERM and exits with 0.

Rank 0 does all the work and saves every few steps; the others keep it company until it has ended.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

from record import Record

from bftrain_elastic import report

SAMPLES = 12
SAVE_EVERY = 20


class Checkpoint:
    """A step in a file, which is replaced as a whole."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "checkpoint"

    def save(self, step: int) -> None:
        new = self._file.with_suffix(f".{os.getpid()}")
        with new.open("w") as file:
            file.write(str(step))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file)

    def load(self) -> int:
        return int(self._file.read_text()) if self._file.exists() else 0


def main() -> None:
    """Load for a while, then count up to the limit in the record's folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", required=True)
    parser.add_argument("--load-s", type=float, default=0.0, help="how long it takes until the work begins")
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--ballast-mb", type=int, default=0, help="ignored")
    given = parser.parse_args()
    folder = Path(os.environ["BFTRAIN_FOLDER"])
    record = Record(given.record)
    checkpoint = Checkpoint(folder)
    works = os.environ.get("RANK", "0") == "0"
    step = began = checkpoint.load()

    def save() -> None:
        checkpoint.save(step)
        record.write("saved", step=step)

    def stop(*_: object) -> None:
        if works and step > began:
            save()
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    time.sleep(given.load_s)
    if not works:
        while not (folder / "over").exists():
            time.sleep(0.05)
        return
    record.write("began", step=step)
    while step < record.limit():
        time.sleep(given.step_s)
        step += 1
        report(samples=SAMPLES, loss=1 / step, step=step)
        if step % SAVE_EVERY == 0:
            save()
    save()
    (folder / "over").touch()
    record.write("ended", step=step, counted=step)


main()
