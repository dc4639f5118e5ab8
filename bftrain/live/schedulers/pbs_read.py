"""What PBS's commands print, read: as JSON where the version has it, else as lines of `name = value`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

Attributes = Mapping[str, Any]

_HEAD: Final = re.compile(r"Job Id: (\S+)|Queue: (\S+)|(\S+)")
_CLOCK: Final = re.compile(r"(?:(\d+):)?(\d+):(\d+)")
_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"
_TIME: Final = re.compile(r"\w{3} (\w{3}) +(\d+) (\d+):(\d+):(\d+) (\d{4})")


def read(said: str, kind: str) -> dict[str, Attributes]:
    """Read jobs (``kind`` Jobs), queues (Queue) or nodes (nodes) by their names, with their attributes.

    What is nested in JSON is ``Resource_List.walltime`` in lines, and so here. ``ValueError`` if it cannot be read:
    some versions print variables of jobs in a way that is no JSON.
    """
    if not said.lstrip().startswith("{"):
        return dict(_lines(said))
    found = msgspec.json.decode(said, type=dict[str, Any]).get(kind, {})
    return {name: dict(_flat(given)) for name, given in msgspec.convert(found, dict[str, dict[str, Any]]).items()}


def _flat(given: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def _lines(said: str) -> Iterator[tuple[str, Attributes]]:
    name, attributes, last = "", dict[str, Any](), ""
    for line in said.splitlines():
        if line.startswith("\t"):  # the value goes on
            attributes[last] = attributes.get(last, "") + line[1:]
        elif line[:1].isspace():
            last, _, value = line.strip().partition(" = ")
            attributes[last] = value
        elif line and (head := _HEAD.match(line)):
            if name:
                yield name, attributes
            name, attributes, last = next(filter(None, head.groups())), {}, ""
    if name:
        yield name, attributes


def variable(job: Attributes, name: str) -> str:
    """Give a variable of a job's environment."""
    if f"Variable_List.{name}" in job:
        return str(job[f"Variable_List.{name}"])
    found = re.search(rf"(?:^|,){re.escape(name)}=([^,]*)", str(job.get("Variable_List", "")))
    return found[1] if found else ""


def host(job: Attributes) -> str:
    """Give the host of a job on one node: ``node7`` of ``node7/0*4``, without a domain."""
    return str(job.get("exec_host", "")).partition("/")[0].partition(".")[0]


def vnodes(text: str) -> tuple[str, ...]:
    """Give the names in ``(node7:ncpus=4)+(node8:ncpus=4)``."""
    return tuple(dict.fromkeys(part.strip("()").partition(":")[0] for part in text.split("+") if part.strip("()")))


def moment(text: object) -> float | None:
    """Read a time such as ``Sat Nov 21 10:10:12 2026``, which is local, or seconds since 1970."""
    if isinstance(text, int | float) or str(text).isdecimal():
        return float(str(text))
    found = _TIME.match(str(text))
    if found is None or found[1] not in _MONTHS:
        return None
    month = _MONTHS.index(found[1]) // 3 + 1
    day, hour, minute, second, year = map(int, found.groups()[1:])
    try:
        return datetime(year, month, day, hour, minute, second).astimezone().timestamp()
    except ValueError:
        return None


def length(text: object) -> float | None:
    """Read a length such as ``24:00:00``, in seconds."""
    if str(text).isdecimal():
        return float(str(text))
    found = _CLOCK.fullmatch(str(text))
    if found is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 3600.0 * hours + 60 * minutes + seconds


def limit(text: object, user: str) -> float:
    """Read a limit such as ``[u:PBS_GENERIC=10], [u:jane=20], [o:PBS_ALL=100]``: what holds for one user."""
    rules = dict(re.findall(r"([ougp]:[^=\]\s]+)=(\d+)", str(text or "")))
    own = rules.get(f"u:{user}", rules.get("u:PBS_GENERIC"))
    return min((float(number) for number in (own, rules.get("o:PBS_ALL")) if number), default=float("inf"))
