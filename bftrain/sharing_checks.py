"""Feasibility checks of time shares. Errors name the policy, the task and the fix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Final, NamedTuple

import msgspec

from bftrain.errors import BrokenPlugin
from bftrain.values.sharing import Shares, SharingProblem, SharingTask

_ROUNDING: Final = 1e-6  # relative


class _Fault(NamedTuple):
    what: str
    fix: str


def check_shares(found: object, problem: SharingProblem, where: str) -> Shares:
    """Return feasible shares; raise an error that names ``where`` if they are not."""
    if not isinstance(found, Shares):
        raise BrokenPlugin(f"gave {type(found).__name__}", where=where, fix="return bftrain.values.sharing.Shares")
    tasks = {task.name: task for task in problem.tasks}
    for faults in (_of_entries(found, tasks), _of_parts(found, tasks, problem), _of_sums(found, tasks, problem)):
        for fault in faults:
            raise BrokenPlugin(fault.what, where=where, fix=fault.fix)
    return found


def _of_entries(found: Shares, tasks: Mapping[str, SharingTask]) -> Iterator[_Fault]:
    fix = f"give one entry to each of the {len(tasks)} tasks"
    for name, given in (("shares", found.shares), ("speeds", found.speeds)):
        for task in sorted(set(given) ^ tasks.keys()):
            yield _Fault(f"gave {name} in which task '{task}' is {'missing' if task in tasks else 'unknown'}", fix)
    for task, speed in found.speeds.items():
        if not _is_part(speed):
            yield _Fault(f"gave task '{task}' the speed {speed!r}", "give finite numbers of at least 0")


def _of_parts(found: Shares, tasks: Mapping[str, SharingTask], problem: SharingProblem) -> Iterator[_Fault]:
    for names, parts in _combinations(found):
        said = " and ".join(f"'{name}'" for name in names)
        nodes = {tasks[name].nodes if name in tasks else None for name in names}
        if len(set(names)) < len(names) or len(nodes) > 1 or None in nodes:
            yield _Fault(f"let {said} share nodes", "pair two of the tasks that need as many nodes")
        for kind, part in parts.items():
            if kind not in problem.nodes:
                yield _Fault(f"gave {said} a share of '{kind}'", f"the kinds are {', '.join(map(repr, problem.nodes))}")
            if not _is_part(part):
                yield _Fault(f"gave {said} the share {part!r} of '{kind}'", "give finite numbers of at least 0")


def _of_sums(found: Shares, tasks: Mapping[str, SharingTask], problem: SharingProblem) -> Iterator[_Fault]:
    time, used = dict.fromkeys(tasks, 0.0), dict.fromkeys(problem.nodes, 0.0)
    for names, parts in _combinations(found):
        for name in names:
            time[name] += sum(parts.values())
        for kind, part in parts.items():
            used[kind] += part * tasks[names[0]].nodes
    for name, part in time.items():
        if part > 1.0 + _ROUNDING:
            yield _Fault(f"gave '{name}' {part:g} times all of its time", "its shares must add up to at most 1")
    for kind, nodes in used.items():
        if nodes > problem.nodes[kind] * (1.0 + _ROUNDING):
            what = f"gave out {nodes:g} nodes of '{kind}', and there are {problem.nodes[kind]}"
            yield _Fault(what, "let the sum of shares times nodes of a task be at most that")


def _combinations(found: Shares) -> Iterator[tuple[tuple[str, ...], Mapping[str, float]]]:
    for name, parts in found.shares.items():
        yield (name,), parts
    for pair in () if found.pairs is msgspec.UNSET else found.pairs:
        yield pair.tasks, pair.shares


def _is_part(number: object) -> bool:
    return isinstance(number, int | float) and isfinite(number) and number >= -_ROUNDING
