"""Whether a CUDA GPU is here, so that tests marked ``gpu`` can run; and trainings that are resized on it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

from bftrain_elastic.agent.agent_settings import visible_gpus
from bftrain_elastic.manager import launchers
from tests.helpers.local_stage import LocalStage

PATIENCE_S = 180.0  # the first use of a GPU by a process may take many seconds
LOG_LETTERS = 4000  # that a failed test shows of each log


def lacking() -> str:
    """Return why tests that need a GPU cannot run here; nothing if they can."""
    if not visible_gpus():
        return "no NVIDIA GPU is here"
    if find_spec("torch") is None:
        return "PyTorch is not installed; install it with: pip install '.[torch]'"
    import torch  # noqa: PLC0415 - slow, and most machines have no GPU

    return "" if torch.cuda.is_available() else f"torch {torch.__version__} finds no CUDA"


class GpuTraining:
    """A training whose group the test changes where it waits: its script commits there until it has another size.

    The script gets the positions where it waits, each with its size then, and the file into which rank 0 writes a
    line of JSON for each position.
    """

    def __init__(self, folder: Path, script: str, *words: str, sizes: Sequence[int] = (1,)) -> None:
        path = folder / "script.py"
        path.write_text(script)
        self.written = folder / "written"
        self.written.touch()
        self.sizes = sizes
        changes = enumerate(pairwise(sizes), 1)
        waits = {str(10 * number): size for number, (size, other) in changes if other != size}
        self.nodes = [f"n{number + 1}" for number in range(max(sizes))]
        arguments = (str(path), str(self.written), json.dumps(waits), str(10 * len(sizes)), *words)
        self.stage = LocalStage(launchers.native, arguments, nodes=self.nodes)

    def run(self) -> list[dict[str, Any]]:
        """Train to the end through all sizes; return what was written, in the order of positions."""
        with self.stage as stage:
            task = stage.new()
            stage.do("start", task, *self.nodes[: self.sizes[0]])
            for number, (size, other) in enumerate(pairwise(self.sizes), 1):
                self.until(10 * number)
                here, there = self.nodes[:size], self.nodes[:other]
                if other > size:
                    stage.do("grow", task, *there[size:])
                elif other < size:
                    stage.do("shrink", task, *here[other:], cause="decided")
            self.finish()
        return self.lines()

    def finish(self) -> None:
        """Wait until the training is done."""
        messages = self.stage.messages
        assert messages.wait(lambda: any(one["type"] == "done" for one in messages.all), PATIENCE_S), self.logs()

    def until(self, position: int) -> None:
        """Wait until the training has come so far."""
        deadline = time.monotonic() + PATIENCE_S
        while not any(one["position"] >= position for one in self.lines()):
            ended = any(one["type"] == "failed" for one in self.stage.messages.all)
            assert not ended, self.logs()
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.02)

    def logs(self) -> str:
        files = sorted(self.stage.folder.glob("*/**/*.log"))
        logs = [f"{file.name}: {file.read_text()[-LOG_LETTERS:]}" for file in files]
        last = [one for one in self.stage.messages.all if one["type"] != "report"][-8:]
        return "\n".join([*logs, *map(str, last)])

    def lines(self) -> list[dict[str, Any]]:
        found = {}
        for line in self.written.read_text().splitlines():
            if line.endswith("}"):
                one = json.loads(line)
                found[one["position"]] = one
        return [found[position] for position in sorted(found)]
