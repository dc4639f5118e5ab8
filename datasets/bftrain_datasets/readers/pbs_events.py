"""Downtime of PBS nodes. Import it together with the accounting.

A node is down while any of its vnodes is out (down, offline, maintenance, stale, sleep and similar states) and no job
holds it. Times of server logs are local.

| source | required | meaning |
|---|---|---|
| ``server_logs/YYYYMMDD`` | | lines ``node down``, ``node up``, ``attributes set: state`` and ``set_vnode_state`` |
| ``pbsnodes -av``, also ``-F json`` | | ``state`` since ``last_state_change_time``; repeat it to see returns |
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from bftrain.errors import BadInput
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import date_line, first_lines, paragraphs
from bftrain_datasets.job_tables.json_records import format_of

name: Final = "pbs-events"
about: Final = "PBS: node downtime from server logs or pbsnodes -av, also with -F json, next to other records"
beside_others: Final = True

LARGEST_BYTES: Final = 1 << 28
CHANGED: Final = "last_state_change_time"
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
_NAME: Final = re.compile(r"\S+\Z")
_FIELD: Final = re.compile(rf" (state|{CHANGED}) = (.*?)(?= [\w.]+ = |\Z)")
_SHOWN: Final = re.compile(rf"\s+{CHANGED} = \w{{3}} \w{{3}} ")


def recognises(head: bytes) -> bool:
    """Return whether one of the first lines is from a server log, or the file lists nodes from pbsnodes."""
    lines = first_lines(head)
    return any(map(_LOGGED.match, lines)) or any(map(_SHOWN.match, lines)) or format_of(head) == name


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every change of a node's state."""
    changes = _StateChanges(intake)
    if file.head.lstrip().startswith(b"{"):
        _read_json(file, changes)
    elif any(map(_SHOWN.match, first_lines(file.head))):
        for number, text in paragraphs(file.lines(), _NAME, intake):
            intake.row(number)
            fields = dict(reversed(_FIELD.findall(text)))  # the first of each, because a comment may follow
            moment = date_line(fields.get(CHANGED, ""), intake.clock)
            changes.process_node(text.partition(" ")[0], fields.get("state", ""), moment)
    else:
        for number, line in file.lines():
            intake.row(number)
            changes.process_log_line(_LOGGED.match(line))


def _read_json(file: RawFile, changes: _StateChanges) -> None:
    """Read the output of ``pbsnodes -av -F json``, possibly repeated."""
    text = file.binary().read(LARGEST_BYTES).decode("utf-8-sig", errors="replace").strip()
    place, row = 0, 0
    while place < len(text):
        try:
            found, end = json.JSONDecoder().raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"incomplete JSON: {error}", where=file.where, fix="fetch the file again") from error
        place = end + len(text[end:]) - len(text[end:].lstrip())
        nodes = found.get("nodes") if isinstance(found, dict) else None
        for node, fields in nodes.items() if isinstance(nodes, dict) else ():
            row += 1
            changes.intake.row(row)
            known = fields if isinstance(fields, dict) else {}
            since = known.get(CHANGED, found.get("timestamp"))
            usable = isinstance(since, int | float) and not isinstance(since, bool) and since > 0
            changes.process_node(node, str(known.get("state", "")), float(since) if usable else None)


class _StateChanges:
    """Passes on node outages and returns with their times and reasons."""

    def __init__(self, intake: RecordIntake) -> None:
        self.intake = intake
        self._known: dict[tuple[str, str], bool] = {}

    def process_log_line(self, match: re.Match[str] | None) -> None:
        """Process a line of the server's log."""
        if match is None:
            self.intake.set_aside("malformed")
            return
        month, day, year, clock, kind, node, text = match.groups()
        reasons = _reasons(text) if kind == "Node" else {}
        if not reasons:
            self.intake.set_aside("other_record")
            return
        try:
            time_s = self.intake.seconds(f"{year}-{month}-{day}T{clock}")
        except ValueError:
            self.intake.set_aside("bad_time")
            return
        self._report_changes(node, time_s, reasons)

    def process_node(self, node: str, state: str, since_s: float | None) -> None:
        """Process the state of a node since a time."""
        if not state or since_s is None:
            self.intake.set_aside("bad_time" if state else "bad_value")
            return
        words = {word.strip().lower() for word in state.split(",")}
        self._report_changes(node, since_s, {word: word in words for word in UNUSABLE})

    def _report_changes(self, vnode: str, time_s: float, reasons: Mapping[str, bool]) -> None:
        """Pass on changes; a host is out while any of its vnodes is out."""
        match = _VNODE.match(vnode)
        if match is None:
            self.intake.set_aside("bad_nodes")
            return
        for reason, out in reasons.items():
            if self._known.get((vnode, reason)) != out:
                self._known[vnode, reason] = out
                self.intake.outages.tell(match[1], time_s, out=out, why=f"{vnode} {reason}")
        self.intake.use()


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
