"""Trainings that hang, crash or diverge: how soon that is reported, and whether their nodes are released."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any, Final, Self

from tests.helpers.local_stage import LocalStage
from tests.helpers.pace import busy_s

PROGRAMS: Final = Path(__file__).parent / "programs"
SOON_S: Final = 30.0  # within which trouble is to be named
WORDS: Final = {
    "deadlock": r"rank 1 on n2 .*faulty\.py:\d+ in stuck_for_ever",
    "collective": r"rank 1 on n2 .*faulty\.py:\d+",
    "one-rank-commit": r"rank 0 waits in state\.commit\(\), which every rank must call.*rank 1 on n2 .*faulty\.py:\d+",
    "nan": r"not a number",
    "stop": r"rank 1 on n2 is stopped",
}


class Stalled:
    """A task of two nodes that has made its mistake; use it in a ``with`` block, after which nothing of it is left."""

    def __init__(self, stage: LocalStage, fault: str, *, limit_s: float) -> None:
        self.stage = stage
        self.fault = fault
        self.limit_s = limit_s
        self.records = stage.folder / f"records-{fault}-{time.monotonic_ns()}"
        self.records.mkdir()
        argv = [str(PROGRAMS / "faulty.py"), "--record", str(self.records), "--fault", fault.replace("stop", "none")]
        self.task = stage.new(argv=argv, stall_limit_s=limit_s, stop_grace_s=2.0)

    def __enter__(self) -> Self:
        stage, fault = self.stage, self.fault
        stage.do("start", self.task, "n1", "n2")
        stage.messages.steps(self.task, 2)
        if fault == "stop":
            self.at = time.time()
            self.stopped = stage.processes("worker", "n2")[0]
            os.kill(self.stopped, signal.SIGSTOP)
        else:
            stage.messages.until(lambda: bool(self.record("fault")), f"{fault}: it made its mistake")
            self.at = self.record("fault")[0]["t"]
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.stage.end(self.task)
        else:  # what went wrong is to be seen, not that something is left
            self.stage.launcher.drop(self.task)

    def record(self, what: str) -> list[dict[str, Any]]:
        file = self.records / "record"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [line for line in lines if line["what"] == what]

    def said(self, pattern: str) -> list[tuple[float, str]]:
        """Return when and how notes, and the reason of a failure, said something."""
        messages = [*self.stage.messages.of("note", self.task), *self.stage.messages.of("failed", self.task)]
        texts = [(one["t"], one.get("text") or one.get("reason", "")) for one in messages]
        return [(t, text) for t, text in texts if re.search(pattern, text, re.DOTALL)]

    def demand_it_is_named(self, pattern: str) -> float:
        """Demand that the mistake is reported in words, soon; return after how many seconds it was."""
        within_s = busy_s(2 * SOON_S)
        self.stage.messages.until(lambda: bool(self.said(pattern)), f"/{pattern}/ is reported", within_s)
        return self.said(pattern)[0][0] - self.at

    def demand_stacks(self, pattern: str) -> None:
        """Demand that the logs of the task have the stacks of its ranks: they are being written when it is named."""
        folder = self.stage.folder / self.task / "logs"

        def logs() -> str:
            return "\n".join(log.read_text(errors="replace") for log in folder.iterdir())

        deadline = time.monotonic() + busy_s(2 * SOON_S)
        while not re.search(pattern, logs()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert re.search(pattern, logs()), f"no stack with /{pattern}/ in its logs:\n{logs()[-3000:]}"

    def demand_it_lets_go(self) -> float:
        """Demand that its nodes are free by the set time; return after how many seconds they were."""
        messages, task = self.stage.messages, self.task
        messages.until(
            lambda: bool(messages.of("failed", task)), "it is given up by the set time", 3 * self.limit_s + busy_s(60)
        )
        messages.until(
            lambda: {node for one in messages.of("vacated", task) for node in one["nodes"]} >= {"n1", "n2"},
            "its nodes are free",
            busy_s(60),
        )
        messages.until(lambda: not self.stage.leftovers(), "no process of it is left", busy_s(60))
        return float(messages.of("failed", task)[0]["t"]) - self.at
