"""Conformance tests of launchers, for those of your own too: see docs/how-to/parts.md.

A stage has four agents on this machine and one launcher. The script is run as ``SCRIPT --steps N`` and must report and
commit each step; as ``SCRIPT --fail`` it must die. No check waits for a time to pass: each waits for what shall happen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from bftrain_elastic.manager.agent_hub import AgentHub, OnEvent
from bftrain_elastic.wire.messages import Message
from tests.helpers.local_stage import PATIENCE_S, TRIAL, LauncherNonconformance, LocalStage, MessageLog
from tests.helpers.processes import listening

_AT_ONCE_S: Final = 0.05  # within which apply() returns, on a machine that may be busy
_TRIES: Final = 3  # how often it may try to do so

__all__ = [
    "CASES",
    "PATIENCE_S",
    "TRIAL",
    "ConformanceCase",
    "LauncherNonconformance",
    "LocalStage",
    "Message",
    "MessageLog",
    "check",
]


@dataclass(frozen=True, slots=True)
class ConformanceCase:
    """One check; ``check(stage)`` raises :class:`LauncherNonconformance`, and then restores the stage."""

    name: str
    run: Callable[[LocalStage], None]

    def check(self, stage: LocalStage) -> None:
        """Run the check, and end its tasks. If it fails, all nodes are restored for the next case."""
        try:
            self.run(stage)
            stage.end(*stage.tasks)
        except Exception:
            with suppress(LauncherNonconformance):  # the first problem is the one to be seen
                stage.restore()
            raise


def check(make: Callable[[OnEvent, AgentHub], Any], script: Sequence[str] = TRIAL) -> None:
    """Run all cases on a launcher."""
    with LocalStage(make, script) as stage:
        for case in CASES:
            case.check(stage)


def _demand(true: object, problem: str) -> None:
    if not true:
        raise LauncherNonconformance(problem)


def _started(stage: LocalStage, *nodes: str, steps: int = 5) -> str:
    """Start a task that is never done, and wait for its first steps; return its name."""
    task = stage.new("--steps", "100000")
    stage.do("start", task, *nodes)
    stage.messages.steps(task, len(nodes), steps)
    return task


def _confirmed(stage: LocalStage, task: str) -> list[int]:
    return [one["size"] for one in stage.messages.of("confirmed", task)]


def _nothing_redone(stage: LocalStage, task: str) -> None:
    steps = [one["step"] for one in stage.messages.of("report", task)]
    _demand(steps, "no step was reported")
    again = [pair for pair in pairwise(steps) if pair[1] != pair[0] + 1]
    _demand(not again, f"steps were redone or left out: {again}")


def _grows_and_shrinks(stage: LocalStage) -> None:
    task = _started(stage, "n1")
    stage.do("grow", task, "n2", "n3")
    stage.messages.steps(task, 3)
    stage.do("shrink", task, "n2", cause="decided")
    stage.messages.steps(task, 2)
    _demand(_confirmed(stage, task) == [1, 3, 2], f"sizes 1, 3, 2 were asked for, not {_confirmed(stage, task)}")
    stage.messages.until(lambda: bool(stage.messages.of("vacated", task)), "the node given up is vacated")
    _nothing_redone(stage, task)


def _reports_add_up(stage: LocalStage) -> None:
    task = _started(stage, "n1", "n2", steps=10)
    for one in stage.messages.of("report", task):
        _demand(one["size"] == len(("n1", "n2")), f"the size is 2: {one}")
        _demand(one["samples"] > 0, f"a step has samples: {one}")
        _demand(abs(one["t"] - time.time()) < PATIENCE_S, f"t is the time of the step: {one}")
        _demand(one["total"] == one["samples"] * (one["step"] - one["since"]), f"total is the sum since then: {one}")
    kept = stage.messages.of("on_disk", task) or stage.messages.of("in_memory", task)
    _demand(kept, "the script commits, and nothing was said of it")


def _moves_altogether(stage: LocalStage) -> None:
    task = _started(stage, "n1")
    stage.launcher.apply(
        [
            {"action": "grow", "task": task, "nodes": ["n2"]},
            {"action": "shrink", "task": task, "nodes": ["n1"], "cause": "decided"},
        ]
    )
    stage.messages.until(
        lambda: stage.messages.of("confirmed", task)[-1]["nodes"] == ["n2"], "the task runs on n2 alone"
    )
    stage.messages.steps(task, 1)
    _nothing_redone(stage, task)


def _wants_are_merged(stage: LocalStage) -> None:
    task = stage.new("--steps", "100000")
    stage.do("start", task, "n1")
    for action, node in (("grow", "n2"), ("grow", "n3"), ("shrink", "n2"), ("grow", "n4"), ("shrink", "n3")):
        stage.do(action, task, node)
    stage.messages.until(
        lambda: [one["nodes"] for one in stage.messages.of("confirmed", task)][-1:] == [["n1", "n4"]],
        "after many wants the last one holds: n1 and n4",
    )
    stage.messages.steps(task, 2)
    generations = [one["generation"] for one in stage.messages.of("confirmed", task)]
    _demand(generations == sorted(set(generations)), f"generations rise: {generations}")


def _nodes_are_taken(stage: LocalStage) -> None:
    task = _started(stage, "n1", "n2", "n3")
    # The oldest, which may well be the one that leads
    stage.lose("n1")
    stage.do("shrink", task, "n1", cause="preempted")
    stage.messages.steps(task, 2)
    stage.launcher.apply(
        [
            {"action": "release", "nodes": ["n2"]},
            {"action": "shrink", "task": task, "nodes": ["n2"], "cause": "preempted"},
        ]
    )
    stage.messages.steps(task, 1)
    stage.find("n1")
    stage.do("grow", task, "n1")
    stage.messages.steps(task, 2)
    _goes_on(stage, task)


def _goes_on(stage: LocalStage, task: str) -> None:
    """Raise if a step before a reported commit is done again."""
    safe = -1
    for one in stage.messages.all:
        if one.get("task") != task:
            continue
        if one["type"] == "confirmed":
            _demand(one["step"] >= safe, f"the task goes on from {one['step']}, and {safe} was on disk")
        if one["type"] == "on_disk":
            safe = max(safe, one["step"])


def _all_nodes_are_taken(stage: LocalStage) -> None:
    task = _started(stage, "n1", "n2", steps=20)
    stage.lose("n1")
    stage.lose("n2")
    stage.do("stop", task, "n1", "n2", cause="preempted")
    stage.messages.until(lambda: bool(stage.messages.of("paused", task)), "a task without nodes is paused")
    stage.do("start", task, "n3")
    stage.messages.steps(task, 1)
    _demand(stage.messages.of("confirmed", task)[-1]["step"] > 0, "it goes on from its last commit, not from the start")
    _goes_on(stage, task)
    stage.find("n1")
    stage.find("n2")


def _stops_and_starts(stage: LocalStage) -> None:
    task = _started(stage, "n1", "n2")
    stage.do("stop", task, "n1", "n2", cause="decided")
    stage.messages.until(lambda: bool(stage.messages.of("paused", task)), "a task that gave up its nodes is paused")
    stage.do("start", task, "n3", "n4")
    stage.messages.steps(task, 2)
    _nothing_redone(stage, task)


def _ends_well(stage: LocalStage) -> None:
    task = stage.new("--steps", "60")
    stage.do("start", task, "n1", "n2")
    stage.messages.until(lambda: bool(stage.messages.of("done", task)), "a task of 60 steps is done")
    _demand(stage.messages.of("done", task)[0]["step"] == 60, f"60 steps: {stage.messages.of('done', task)}")
    _demand(not stage.messages.of("failed", task), "it did not fail")


def _fails_with_its_last_words(stage: LocalStage) -> None:
    task = stage.new("--fail")
    stage.do("start", task, "n1")
    stage.messages.until(lambda: bool(stage.messages.of("failed", task)), "a script that always dies has failed")
    reason = stage.messages.of("failed", task)[0]["reason"]
    _demand("as it was asked to" in reason, f"the reason ends with its last words, not: {reason}")
    _demand(len(stage.messages.of("note", task)) >= 1, "it was tried more than once")


def _two_tasks(stage: LocalStage) -> None:
    one, other = _started(stage, "n1", "n2"), stage.new("--steps", "100000")
    stage.launcher.apply(
        [
            {"action": "shrink", "task": one, "nodes": ["n2"], "cause": "decided"},
            {"action": "start", "task": other, "nodes": ["n2", "n3"]},
        ]
    )
    stage.messages.steps(other, 2)
    stage.messages.steps(one, 1)


def _apply_returns_at_once(stage: LocalStage) -> None:
    took = [_applying_s(stage)]
    while min(took) >= _AT_ONCE_S and len(took) < _TRIES:  # the machine may have been busy with something else
        took.append(_applying_s(stage))
    _demand(min(took) < _AT_ONCE_S, f"apply() took {min(took):.3f} s")


def _applying_s(stage: LocalStage) -> float:
    task = stage.new("--steps", "100000")
    begun = time.perf_counter()
    stage.do("start", task, "n1", "n2", "n3", "n4")
    stage.do("stop", task, "n1", "n2", "n3", "n4")
    took = time.perf_counter() - begun
    stage.end(task)
    return took


def _keeps_to_itself(stage: LocalStage) -> None:
    task = _started(stage, "n1", "n2")
    hosts = {host for host, _ in listening(stage.below())}
    _demand(hosts <= {"127.0.0.1"}, f"its processes listen on {hosts}, and their agents were given 127.0.0.1")
    folder = stage.folder / task
    if folder.exists():  # a launcher that runs nowhere writes nothing
        _demand(folder.stat().st_mode & 0o077 == 0, f"others can look into {folder}")
        for path in folder.rglob("*"):
            _demand(path.stat().st_mode & 0o022 == 0 and path.stat().st_uid == os.getuid(), f"others can write {path}")


CASES: Final = tuple(
    ConformanceCase(run.__name__.strip("_").replace("_", "-"), run)
    for run in (
        _grows_and_shrinks,
        _reports_add_up,
        _moves_altogether,
        _wants_are_merged,
        _nodes_are_taken,
        _all_nodes_are_taken,
        _stops_and_starts,
        _ends_well,
        _fails_with_its_last_words,
        _two_tasks,
        _apply_returns_at_once,
        _keeps_to_itself,
    )
)
