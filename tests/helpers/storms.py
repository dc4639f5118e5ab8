"""Fault injection: random changes of size, and random deaths of workers."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.agent.process_tree import descendants, kill
from tests.helpers.local_stage import PATIENCE_S, LocalStage
from tests.helpers.stages import NODES
from tests.helpers.storm_site import StormSite


def storm(stage: LocalStage, task: str, *, rounds: int) -> int:
    """Change the nodes of a task so often, until it has trained on each; gives the number of deaths."""
    chance = random.Random(7)  # noqa: S311 - the same storm every time
    kills, held = 0, {"n1"}
    stage.do("start", task, "n1")
    stage.messages.steps(task, 1)
    for _ in range(rounds):
        if chance.random() < 0.25:
            kill_worker(stage, chance.choice(sorted(held)))
            kills += 1
        wanted = set(chance.sample(NODES, chance.randint(1, len(NODES))))
        if wanted - held:
            stage.do("grow", task, *sorted(wanted - held))
        if held - wanted:
            stage.do("shrink", task, *sorted(held - wanted), cause=chance.choice(["decided", "decided", "preempted"]))
        held = wanted
        stage.messages.steps(task, len(held), 2)
    return kills


def planned_change_s(stage: LocalStage, task: str, held: Sequence[str]) -> float:
    """Take the last of these nodes from a task and give it back; return how long this machine took for the first."""
    since, begun = len(stage.messages.all), time.time()
    stage.do("shrink", task, held[-1], cause="decided")
    stage.messages.until(lambda: bool(stage.messages.of("confirmed", task, since)), "the task leaves a node")
    took_s = float(stage.messages.of("confirmed", task, since)[0]["t"]) - begun
    stage.messages.steps(task, len(held) - 1, 2)
    stage.do("grow", task, held[-1])
    stage.messages.steps(task, len(held), 2)
    return took_s


def kill_worker(stage: LocalStage, node: str) -> float:
    """Kill the worker on a node; gives the time."""
    for worker in set(descendants(stage.agents.running[node].pid)) & set(stage.leftovers()):
        kill(worker)
    return time.time()


def assert_never_behind_a_commit(stage: LocalStage, task: str) -> None:
    """Demand that steps reported on disk are not done again, and no step is left out."""
    safe = 0
    for one in stage.messages.all:
        if one.get("task") == task:
            safe = max(safe, one["step"]) if one["type"] == "on_disk" else safe
            assert one["type"] != "confirmed" or one["step"] >= safe
    steps = [one["step"] for one in stage.messages.of("report", task)]
    assert all(later <= earlier + 1 for earlier, later in pairwise(steps))


@dataclass
class RandomFaults:
    """Random changes of nodes, and random kills and stops of all kinds of processes, of one task on a site.

    Nearly half of the changes are followed by the next one at once, before the task has come to rest.
    """

    site: StormSite
    seed: int
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Begin the same sequence of changes every time."""
        self._chance = random.Random(self.seed)  # noqa: S311 - the same storm every time

    def inject(self, changes: int) -> None:
        self._resize()
        self._wait_for_steps(3)
        for _ in range(changes):
            kind = self._chance.choices(list(_KINDS), weights=list(_KINDS.values()))[0]
            self.counts[kind] += 1
            getattr(self, f"_{kind}")()
            self._return_nodes()
            if not self.site.held:
                self._resize()
            self._demand_it_lives(f"after {self.counts.total()} changes, the last one being '{kind}'")
            if self._chance.random() < 0.55:
                self._wait_for_steps(2)
            else:
                time.sleep(self._chance.uniform(0.0, 0.4))

    def finish(self) -> int:
        """Ask for some more steps, and wait until the task is done with them; return their number."""
        site = self.site
        self._wait_for_steps(1)
        limit = max(site.step(), *(line["step"] for line in site.record())) + _FURTHER
        (site.records / "limit").write_text(str(limit))
        site.until(lambda: site.of("done") or site.of("failed"), "the task is done")
        self._demand_it_lives("at the end", over=True)
        return limit

    def _resize(self) -> None:
        self.site.hold(self._chance.sample(self.site.nodes, self._chance.randint(1, len(self.site.nodes))))

    def _preempt_some(self) -> None:
        if self.site.held:
            taken = self._chance.sample(self.site.held, self._chance.randint(1, len(self.site.held)))
            self.site.preempt(taken, self._chance.choice(_GAPS_S))

    def _preempt_all(self) -> None:
        self.site.preempt(list(self.site.held), self._chance.choice(_GAPS_S))

    def _hit_worker(self) -> None:
        node = self._chance.choice(self.site.held)
        self._hit(self.site.worker(node))

    def _hit_prefork(self) -> None:
        node = self._chance.choice(self.site.held)
        self._hit(self.site.prefork(node))

    def _hit_agent(self) -> None:
        node = self._chance.choice(self.site.held)
        if self._hit(self.site.agents[node].pid):
            self.site.mark_taken([node])

    def _hit_manager(self) -> None:
        if self._hit(self.site.manager.pid):
            self.site.replace_manager()

    def _hit(self, pid: int | None) -> bool:
        """Kill a process, or stop it and let it go on or kill it later; tell whether it was killed."""
        if pid is None:  # it is not born yet
            return False
        if self._chance.random() < 0.5:
            kill(pid)
            return True
        kill(pid, signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.1, 1.5))
        if self._chance.random() < 0.6:
            kill(pid, signal.SIGCONT)
            return False
        kill(pid)
        return True

    def _return_nodes(self) -> None:
        for node in self.site.nodes:
            if node not in self.site.agents:
                self.site.start_agent(node)

    def _wait_for_steps(self, count: int) -> None:
        before = self.site.step()
        self.site.until(lambda: self.site.step() >= before + count or self.site.of("failed"), f"{count} more steps")

    def _demand_it_lives(self, when: str, *, over: bool = False) -> None:
        failed, done = self.site.of("failed"), self.site.of("done")
        assert not failed, f"{when} it is given up: {failed[0].get('reason')}; {self.site.story()}"
        assert over or not done, f"{when} it is called done: {done}; {self.site.story()}"


# What happens, and how often compared to the others
_KINDS: Final = {
    "resize": 6,
    "preempt_some": 3,
    "preempt_all": 2,
    "hit_worker": 3,
    "hit_prefork": 2,
    "hit_agent": 2,
    "hit_manager": 2,
}
_GAPS_S: Final = (0.0, 0.001, 0.02, 0.1)  # between the SIGTERM of one process of a node and that of the next
_FURTHER: Final = 150  # steps that are left when the storm is over


def survive_faults(folder: Path, launcher: str, *, changes: int, seed: int, nodes: int = 4) -> dict[str, float]:
    """Put a task through a storm, demand that nothing is lost or left behind, and return figures."""
    script = {"horovod": "training_horovod.py"}.get(launcher, "training.py")
    names = [f"n{number}" for number in range(1, nodes + 1)]
    with StormSite(folder, launcher, script, names, "--step-s", "0.01", "--ballast-mb", "8") as site:
        storm = RandomFaults(site, seed)
        storm.inject(changes)
        limit = storm.finish()
        demand_nothing_is_lost(site, limit)
        begins = [line for line in site.record() if line["what"] == "began"]
        return {
            "changes": float(changes),
            "steps": float(limit),
            "groups": float(len(begins)),
            "steps behind on_disk": 0.0,
            **{name: float(count) for name, count in sorted(storm.counts.items())},
        }


def demand_nothing_is_lost(site: StormSite, limit: int) -> None:
    """Demand that a task has done each step, once as its state says, and never went back behind what was on disk."""
    story = site.story()
    assert site.of("done")[-1]["step"] == limit, story
    ends = [line for line in site.record() if line["what"] == "ended"]
    assert ends, story
    assert all(line["step"] == line["counted"] == limit for line in ends), f"{ends} {story}"
    on_disk = [(one["t"], one["step"]) for one in site.of("on_disk")]
    assert on_disk, f"nothing was ever on disk: {story}"
    lost = []
    for line in site.record():
        saved = max((step for t, step in on_disk if t < line["t"]), default=0)
        if line["what"] == "went_on" and line["step"] < saved:
            lost.append((saved, line["step"]))
    assert not lost, f"(on disk, went on from): {lost}; {story}"


def lose_first_workers(stage: LocalStage, record: Path, writes: str, losses: int) -> int:
    """Take the first of two workers so often in its first step, and return how many values were lost by that.

    It is killed and replaced, or its node is preempted: then the other goes on alone, or with another at once.
    """
    program = str(Path(__file__).parent / "programs" / "first_values.py")
    task, held = stage.new(argv=[program, str(record), writes]), ["n1", "n2"]
    stage.do("start", task, "n1")
    stage.messages.steps(task, 1, 2)
    stage.do("grow", task, "n2")
    seen = 0
    for number in range(losses):
        first, pid = _wait_for_first_step(record, seen)
        seen = first
        free = next(node for node in NODES[:3] if node not in held)
        if number % 3 == 0 and writes != "sharded":  # where steps are repeated, kills count as failed growth
            os.kill(pid, signal.SIGKILL)
            held.reverse()
            continue
        stage.lose(held[0])
        shrinks = {"action": "shrink", "task": task, "nodes": held[:1], "cause": "preempted"}
        grows = {"action": "grow", "task": task, "nodes": [free]}
        if number % 3 == 1:
            stage.apply(shrinks)
            stage.messages.steps(task, 1, 2)
            stage.apply(grows)
        else:
            stage.apply(shrinks, grows)
        stage.find(held[0])
        held = [held[1], free]
    _wait_for_first_step(record, seen)
    stage.end(task)
    return sum(_count_lost(line) for line in _lines(record))


def _lines(record: Path) -> list[dict[str, Any]]:
    text = record.read_text() if record.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _wait_for_first_step(record: Path, seen: int) -> tuple[int, int]:
    """Wait until both workers of the next group have made a step; return the lines so far, and the first's pid."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        lines = _lines(record)
        committed = {line["rank"]: line["pid"] for line in lines[seen:] if line["what"] == "committed"}
        if len(committed) == 2:
            return len(lines), committed[0]
        time.sleep(0.01)
    raise AssertionError(f"no group of two made a step: {_lines(record)[-4:]}")


def _count_lost(line: dict[str, Any]) -> int:
    """Return how many values of a worker are not those that the first one wrote in the step of its position."""
    now = float(line["position"])
    small = [line["count"], line["history"]]
    return sum(one != now for one in small) + len({*line["large"]} - {now}) + len({*line["theirs"]} - {0.0})
