"""Downtime of PBS nodes in server logs, ``server_logs/YYYYMMDD``. Import them together with the accounting.

A node is down while any of its vnodes is out (down, offline, maintenance, stale, sleep and similar states) and no job
holds it.

| field | required | meaning |
|---|---|---|
| 1 | yes | local time |
| 4, 5 | yes | ``Node``, and its name |
| 6 | yes | ``node down``, ``node up``, ``attributes set: state`` or ``set_vnode_state`` |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Final

from bftrain_datasets.importing.findings import SkippedRow
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_columns import first_lines

name: Final = "pbs-events"
about: Final = "PBS: node downtime from server logs, next to other records"
beside_others: Final = True  # may be imported together with files of another format

DOWN, OFFLINE, OFFLINE_BY_MOM = "down", "offline", "offline_by_mom"
# States with no jobs accepted, and their bits in the server's log
UNUSABLE: Final[Mapping[str, int]] = {
    OFFLINE: 0x1,
    DOWN: 0x2,
    "deleted": 0x4,
    "unresolvable": 0x8,
    "stale": 0x20,
    "state-unknown": 0x100,
    "provisioning": 0x800,
    "wait-provisioning": 0x1000,
    OFFLINE_BY_MOM: 0x4000,
    "maintenance": 0x20000,
    "sleep": 0x40000,
}

_LOGGED: Final = re.compile(
    r"(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d(?:\.\d+)?);[0-9a-fA-F]{4};[^;]*;([^;]*);([^;]*);(.*)"
)
_BITS: Final = re.compile(r"set_vnode_state;vnode\.state=0x([0-9a-f]{1,8}) ")
_SET: Final = re.compile(r"attributes set: state ([=+-]) ([\w,-]+)")
_VNODE: Final = re.compile(r"([\w.-]+)(?:\[\d+\])?\Z")


def recognises(head: bytes) -> bool:
    """Return whether one of the first lines is from a server log."""
    return any(map(_LOGGED.match, first_lines(head)))


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every change of a node's state."""
    known: dict[tuple[str, str], bool] = {}  # state by vnode and reason: True if it is out
    intake.take_rows(file.lines(), partial(_add_change, known=known, intake=intake))


def _add_change(line: str, known: dict[tuple[str, str], bool], intake: RecordIntake) -> None:
    """Pass on a node's changes with their times and reasons; a host is out while any of its vnodes is out."""
    match = _LOGGED.match(line)
    if match is None:
        raise SkippedRow("malformed")
    month, day, year, clock, kind, vnode, text = match.groups()
    reasons = _reasons(text) if kind == "Node" else {}
    if not reasons:
        raise SkippedRow("other_record")
    time_s = intake.seconds(f"{year}-{month}-{day}T{clock}")
    host = _VNODE.match(vnode)
    if host is None:
        raise SkippedRow("bad_nodes")
    for reason, out in reasons.items():
        if known.get((vnode, reason)) != out:
            known[vnode, reason] = out
            intake.outages.tell(host[1], time_s, out=out, why=f"{vnode} {reason}")
    intake.use()


def _reasons(text: str) -> dict[str, bool]:
    """Return for each reason in a line whether the node is now out for this reason."""
    if text.startswith(("node down", "node up")):
        return {DOWN: text.startswith("node down")}
    bits, change = _BITS.match(text), _SET.match(text)
    if bits:
        state = int(bits[1], 16)
        return {reason: bool(state & bit) for reason, bit in UNUSABLE.items()}
    if change is None:
        return {}
    words = change[2].lower().split(",")
    if change[1] == "=":
        return {reason: reason in words for reason in UNUSABLE}
    found = {reason: change[1] == "+" for reason in UNUSABLE if reason in words}
    if found.get(OFFLINE) is False:
        found[OFFLINE_BY_MOM] = False  # the server clears both
    return found
