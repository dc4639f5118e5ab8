"""Jobs of the main queue of a Slurm of the tests: a stream of them, and how long each waited."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Final

from tests.helpers.slurm import Slurm, wait_until

# Slurm looks once a second at what came. A job's wait is mostly that, so the jobs are spread evenly over the second:
# else chance would decide which of two short streams waits longer
_GOLDEN: Final = (5**0.5 - 1) / 2


class Stream:
    """The same jobs, of 1 to 4 nodes, at the same times, whenever it is made with the same ``seed``."""

    def __init__(self, cluster: Slurm, folder: Path, *, jobs: int, seed: int, gap_s: float = 1.1) -> None:
        chance = random.Random(seed)  # noqa: S311 - jobs of a test
        self.sizes = [chance.choice([1, 1, 2, 2, 3, 4]) for _ in range(jobs)]
        self._lengths = [chance.uniform(0.2, 2.0) for _ in range(jobs)]
        self._at_s = [round(number * gap_s) + (number * _GOLDEN + 0.37 * seed) % 1 for number in range(jobs)]
        self._cluster = cluster
        self._folder = folder
        self.submitted: list[float] = []
        folder.mkdir()

    def run(self) -> list[float]:
        """Submit them all, wait until they are over, and give how long each waited, to the millisecond."""
        begun = time.monotonic()
        for at_s in self._at_s:
            time.sleep(max(0.0, begun + at_s - time.monotonic()))
            self.submit_next()
        wait_until(self.all_ran, "all main jobs ran", self._cluster.logs)
        return self.waits()

    def submit_next(self) -> None:
        number = len(self.submitted)
        began = self._folder / str(number)
        words = f"date +%s.%N > {began}.part; mv {began}.part {began}; sleep {self._lengths[number]}; touch {began}.end"
        self._cluster.submit(words, f"-N{self.sizes[number]}", "--exclusive")
        self.submitted.append(time.time())

    def all_ran(self) -> bool:
        """Return whether all that were submitted began and ended."""
        return len(list(self._folder.glob("*.end"))) == len(self.submitted)

    def waits(self) -> list[float]:
        """Return how long each waited from the return of sbatch on."""
        began = [float((self._folder / str(number)).read_text()) for number in range(len(self.submitted))]
        return [at - submitted for at, submitted in zip(began, self.submitted, strict=True)]
