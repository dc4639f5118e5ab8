"""Rounds for tests: small gangs, and a run in rounds task by task, as slow and plain as can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bftrain import SpeedCurve, TaskSpec


def gang(name: str, work: float | None, nodes: int = 1, submit_s: float = 0.0, **more: object) -> TaskSpec:
    """Return a task of one size; ``speeds`` by kind, or speed 1 on its nodes."""
    speeds: Mapping[str, float] = more.pop("speeds", {})  # type: ignore[assignment]  # as said above
    curves = {kind: SpeedCurve(nodes=(nodes,), rate=(speed,)) for kind, speed in speeds.items()}
    curve = next(iter(curves.values()), SpeedCurve(nodes=(nodes,), rate=(1.0,)))
    return TaskSpec(
        name=name,
        curve=curve,
        curves=curves,
        min_nodes=nodes,
        max_nodes=nodes,
        work_samples=work,
        submit_s=submit_s,
        **more,  # type: ignore[arg-type]  # fields of a task
    )


@dataclass
class Job:
    """A task on its way."""

    spec: TaskSpec
    left: float
    nodes: int = 0  # on which it runs
    held: int = 0  # on which it ran last
    ran_s: float = 0.0
    last_s: float = 0.0  # until when it ran last
    got_node_s: float = 0.0
    kind: str | None = None
    overhead_s: float = 0.0
    start_s: float | None = None
    end_s: float | None = None
    starts: int = 0
    preemptions: int = 0
    speeds: dict[str, float] = field(default_factory=dict)
    where: list[int] = field(default_factory=list)  # the nodes of its kind that it holds, by number
    share: float = 1.0  # of its speed that it has there


KEYS = {
    "fifo": lambda job: job.spec.submit_s,
    "las": lambda job: job.got_node_s / job.spec.weight,
    "srtf": lambda job: job.left / max(job.speeds.values()),
}


Order = Callable[[list[Job], float], "Iterable[tuple[Job, list[str]]]"]  # jobs, and the kinds that each would have


def by_key(key: Callable[[Job], float]) -> Order:
    """Put jobs in the order of a key; each would rather have the kind that is faster for it."""
    return lambda here, _: [(job, fastest_first(job)) for job in sorted(here, key=key)]


def fastest_first(job: Job) -> list[str]:
    """Return the kinds on which it runs."""
    return sorted(job.speeds, key=lambda kind: -job.speeds[kind])


def slowly(
    tasks: Sequence[TaskSpec],
    nodes: Mapping[str, int],
    policy: str | Order,
    round_s: float,
    finish: str,
    hosts: tuple[Mapping[str, int], str] | None = None,
) -> dict[str, Job]:
    """Run an order policy on a cluster, one round and one task after the other.

    ``hosts`` are the nodes of one host of each kind, and how gangs are placed on them.
    """
    order = by_key(KEYS[policy]) if isinstance(policy, str) else policy
    jobs = [Job(spec, spec.work_samples or math.inf) for spec in sorted(tasks, key=lambda spec: spec.submit_s)]
    for job in jobs:
        job.nodes = size = job.spec.min_nodes
        job.last_s = job.spec.submit_s
        curves = {kind: job.spec.curve_on(kind) for kind in nodes}
        job.speeds = {kind: curve.speed(size) for kind, curve in curves.items() if curve and size <= nodes[kind]}
        job.speeds = {kind: speed for kind, speed in job.speeds.items() if speed}
    number = 0
    while any(job.end_s is None for job in jobs):
        now_s = number * round_s
        here = [job for job in jobs if job.spec.submit_s <= now_s and job.end_s is None]
        free, running = dict(nodes), []
        for job, kinds in order(here, now_s) if here else ():
            for kind in kinds:
                if job.nodes <= free[kind]:
                    free[kind] -= job.nodes
                    running.append((job, kind))
                    break
        chosen = {job.spec.name for job, _ in running}
        for job in here:
            if job.spec.name not in chosen and job.kind is not None:
                job.kind, job.preemptions = None, job.preemptions + 1
        moved = place(running, nodes, *hosts) if hosts else set()
        for job, kind in running:
            if (job.kind, job.held) != (kind, job.nodes) or job.spec.name in moved:
                job.starts += 1
                job.overhead_s = job.spec.start_cost_s
            job.kind, job.held = kind, job.nodes
            job.start_s = now_s if job.start_s is None else job.start_s
            _work(job, now_s, round_s, finish)
        number += 1
    return {job.spec.name: job for job in jobs}


def place(
    running: list[tuple[Job, str]], nodes: Mapping[str, int], per_host: Mapping[str, int], placement: str
) -> set[str]:
    """Give nodes to all that run, large gangs first; return the names of those that go on, on other nodes."""
    moved, largest = set(), max(min(nodes[kind], size) for kind, size in per_host.items())
    for kind, count in nodes.items():
        own = sorted(
            ((job, job.kind == kind and job.held == job.nodes) for job, on in running if on == kind), key=_wide
        )
        free = set(range(count))
        if placement != "first-free":
            free -= {node for job, stays in own if stays for node in job.where}
        for size in sorted({job.nodes for job, _ in own}, reverse=True):
            others = []
            for job, stays in ((job, stays) for job, stays in own if job.nodes == size):
                if stays and (placement != "first-free" or free.issuperset(job.where)):
                    free -= set(job.where)
                else:
                    others.append((job, stays))
            for job, stays in others:
                by_host: dict[int, list[int]] = {}
                for node in sorted(free):
                    by_host.setdefault(node // per_host[kind], []).append(node)
                job.where = CHOSEN[placement](by_host, size)
                free -= set(job.where)
                moved |= {job.spec.name} if stays else set()
                lies_on = {node // per_host[kind] for node in job.where}
                shares = {each.kind: each.share for each in job.spec.spread.speeds} if job.spec.spread else {}
                job.share = shares.get(kind, 1.0) or 0.0 if len(lies_on) > math.ceil(size / largest) else 1.0
    return moved


def _wide(each: tuple[Job, bool]) -> int:
    return -each[0].nodes


def _on_few(by_host: dict[int, list[int]], size: int) -> list[int]:
    chosen: list[int] = []
    while len(chosen) < size:
        able = [host for host in by_host if len(by_host[host]) >= size - len(chosen)]
        host = min(able, key=lambda each: len(by_host[each])) if able else max(by_host, key=lambda e: len(by_host[e]))
        chosen += by_host.pop(host)[: size - len(chosen)]
    return chosen


def _on_many(by_host: dict[int, list[int]], size: int) -> list[int]:
    chosen: list[int] = []
    hosts = sorted(by_host, key=lambda host: -len(by_host[host]))
    while len(chosen) < size:
        chosen += [by_host[host].pop(0) for host in hosts if by_host[host]]
    return chosen[:size]


CHOSEN = {
    "consolidated": _on_few,
    "scattered": _on_many,
    "first-free": lambda by_host, size: [node for host in by_host.values() for node in host][:size],
}


def _work(job: Job, now_s: float, round_s: float, finish: str) -> None:
    speed = job.speeds[job.kind or ""] * job.share
    needs_s = job.overhead_s + job.left / speed
    done = needs_s <= round_s * (1 + 1e-12)
    ran_s = min(needs_s, round_s)
    job.left -= max(0.0, ran_s - job.overhead_s) * speed
    job.overhead_s = max(0.0, job.overhead_s - ran_s)
    held_s = ran_s if finish == "moment" else round_s
    job.ran_s, job.last_s = job.ran_s + held_s, now_s + round_s
    job.got_node_s += held_s * job.nodes
    if done:
        job.end_s = now_s + (needs_s if finish == "moment" else round_s)
