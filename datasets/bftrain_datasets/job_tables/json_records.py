"""JSON records, parsed one by one without loading the whole file: objects, an array, or the array in an object."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bftrain.errors import BadInput
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.raw_file import RawFile

LONGEST_RECORD: Final = 1 << 24  # letters; longer ones are not job records
MOST_DEPTH: Final = 5  # nesting of fields in a record
_BLOCK: Final = 1 << 18
_BLANK: Final = " \t\r\n"
_LISTS: Final = (
    "jobs",
    "items",
    "data",
    "records",
    "rows",
    "results",
    "reservations",
)  # keys of an object that contain its records
# Keys that identify the JSON of a format with its own reader: all of one set
KNOWN_BY: Final[Mapping[str, tuple[frozenset[str], ...]]] = {
    "oar": (
        frozenset({"assigned_network_address"}),
        frozenset({"dead_resources"}),
        frozenset({"network_address", "resource_id"}),
    ),
    "pbs-events": (frozenset({"pbs_version", "nodes", "last_state_change_time"}),),
    "sge": (frozenset({"job_number", "qname"}),),
    "slurm-reservations": (frozenset({"reservations", "node_list"}), frozenset({"reservations", "last_update"})),
    "kubernetes": (
        frozenset({"apiVersion", "nodeName"}),
        frozenset({"apiVersion", "metadata", "containers"}),
        frozenset({"apiVersion", "involvedObject"}),
        frozenset({"apiVersion", "regarding"}),
    ),
    "htcondor": (
        frozenset({"ClusterId", "ProcId", "JobStatus"}),
        frozenset({"ClusterId", "ProcId", "LastRemoteHost"}),
        frozenset({"ClusterId", "ProcId", "RemoteHost"}),
    ),
    "flux": (
        frozenset({"t_run", "nodelist"}),
        frozenset({"t_submit", "urgency"}),
        frozenset({"timestamp", "name", "context", "urgency"}),
        frozenset({"execution", "R_lite"}),
    ),
}
_KEYS: Final = re.compile(rb'"([^"\\]{1,100})"\s*:')
_NUMBER: Final = {"set", "number"}  # Slurm's form of a number that may be missing or infinite
_RESOURCE: Final = {"type", "name", "count"}  # Slurm's form of a job's resource


def keys_in(head: bytes) -> list[str]:
    """Return the keys in the beginning of JSON, in order of first occurrence."""
    return list(dict.fromkeys(key.decode(errors="replace") for key in _KEYS.findall(head)))


def format_of(head: bytes) -> str:
    """Return the format with its own reader that the first keys identify, or an empty text."""
    keys = set(keys_in(head))
    return next((name for name, sets in KNOWN_BY.items() if any(keys >= each for each in sets)), "")


def records(file: RawFile, tally: FindingsTally) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield each record with its line, or in an array its index; set other values aside."""
    head = file.head.lstrip()
    lines = head.startswith(b"{") and _is_record(head.partition(b"\n")[0])
    found = _lines(file) if lines else enumerate(_elements(_JsonText(file)), start=1)
    for number, record in found:
        if isinstance(record, dict):
            yield number, record
        else:
            tally.row(number)
            tally.set_aside("malformed")


def _is_record(line: bytes) -> bool:
    """Return whether a line is a whole object, and not one with a list of records."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and not any(isinstance(found.get(name), list) for name in _LISTS)


def _lines(file: RawFile) -> Iterator[tuple[int, Any]]:
    for number, line in file.lines():
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError):
                yield number, None


class _JsonText:
    """The text of a file, parsed one value at a time."""

    def __init__(self, file: RawFile) -> None:
        self._stream = file.binary()
        self._where = file.where
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._scan = json.JSONDecoder().raw_decode
        self._text = ""
        self._place = 0
        self._over = False
        self.taken = 0  # letters of parsed values

    def peek(self) -> str:
        """Return the next non-blank letter, or an empty text at the end."""
        while True:
            while self._place < len(self._text):
                if self._text[self._place] not in _BLANK:
                    return self._text[self._place]
                self._place += 1
            if not self._more():
                return ""

    def skip(self) -> None:
        """Skip one letter."""
        self._place += 1

    def value(self) -> Any:  # noqa: ANN401 - JSON is what it is
        """Parse and return the next value."""
        self.peek()
        while True:
            try:
                found, end = self._scan(self._text, self._place)
            except RecursionError:
                raise self.broken("nested too deep") from None
            except ValueError as error:
                if len(self._text) - self._place > LONGEST_RECORD:
                    raise self.broken(f"a record of more than {LONGEST_RECORD:,} letters") from error
                if not self._more():
                    raise self.broken(str(error)) from error
                continue
            if end < len(self._text) or self._over or not self._more():  # a number may continue
                self.taken += end - self._place
                self._place = end
                return found

    def broken(self, why: str) -> BadInput:
        """Return the error for a damaged file."""
        return BadInput(f"incomplete JSON: {why}", where=self._where, fix="fetch the file again")

    def _more(self) -> bool:
        block = b"" if self._over else self._stream.read(max(_BLOCK, len(self._text) - self._place))
        self._over = not block
        self._text = self._text[self._place :] + self._decoder.decode(block, final=self._over)
        self._place = 0
        return not self._over


def _elements(text: _JsonText) -> Iterator[Any]:
    """Yield consecutive objects, and the elements of arrays, or of the array in an object with records."""
    while (mark := text.peek()) in {"{", "["}:
        yield from _of_object(text) if mark == "{" else _of_array(text)


def _of_object(text: _JsonText) -> Iterator[Any]:
    """Yield the elements of the array in an object, or the object itself if it has none."""
    text.skip()
    fields: dict[str, Any] = {}
    holds_records, begin = False, text.taken
    while text.peek() == '"':
        name = text.value()
        if text.peek() != ":":
            raise text.broken("a name without a value")
        text.skip()
        if name in _LISTS and text.peek() == "[":
            holds_records = True
            fields.clear()
            yield from _of_array(text)
        elif holds_records:
            text.value()
        else:
            fields[name] = text.value()
            if text.taken - begin > LONGEST_RECORD:
                raise text.broken(f"a record of more than {LONGEST_RECORD:,} letters")
        if text.peek() == ",":
            text.skip()
    if text.peek() == "}":
        text.skip()
    elif not holds_records:
        raise text.broken("ends within an object")
    if fields:
        yield fields


def _of_array(text: _JsonText) -> Iterator[Any]:
    text.skip()
    while (mark := text.peek()) != "]":
        if mark == ",":
            text.skip()
        elif mark:
            yield text.value()
        else:
            raise text.broken("ends within an array")
    text.skip()


def leaf_names(record: object, before: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the field names of a record, nested ones with dots."""
    if depth == MOST_DEPTH:
        return
    if isinstance(record, list):
        resources = sorted({_resource(each) for each in record if _is_resource(each)})
        yield from (f"{before}.{name}" for name in resources)
        record = record[0] if record and isinstance(record[0], dict) else None
    if not isinstance(record, dict) or record.keys() >= _NUMBER:
        if before:
            yield before
        return
    if before:
        yield before
    for name, inner in record.items():
        yield from leaf_names(inner, f"{before}.{name}" if before else name, depth + 1)


def dig(record: object, path: str) -> Any:  # noqa: ANN401 - JSON is what it is
    """Return a field of a record; a list if there are several."""
    return dig_path(record, tuple(path.split(".")))


def dig_path(record: object, path: Sequence[str]) -> Any:  # noqa: ANN401 - JSON is what it is
    """Return the field at a path of names."""
    if isinstance(record, list):
        resources = [each for each in record if _is_resource(each)]
        if resources and path and path[0] not in _RESOURCE:
            return _amount(resources, path[0])
        found = [dig_path(each, path) for each in record] if path else record
        return [deep for each in found for deep in (each if isinstance(each, list) else [each])]
    if isinstance(record, dict):
        if path:
            whole = ".".join(path)
            if whole not in record:
                return dig_path(record.get(path[0]), path[1:])
            found = record[whole]
            return dig_path(found, ()) if isinstance(found, dict) and found.keys() >= _NUMBER else found
        if record.keys() >= _NUMBER:
            return record["number"] if record["set"] else None
    return None if path else record


def _is_resource(entry: object) -> bool:
    return isinstance(entry, dict) and entry.keys() >= _RESOURCE and isinstance(entry["count"], int)


def _resource(entry: Mapping[str, Any]) -> str:
    """Return the resource of an entry: ``cpu``, ``mem``, or the name of a generic resource, such as ``gpu``."""
    return str(entry["name"] or entry["type"]).partition(":")[0]


def _amount(resources: Sequence[Mapping[str, Any]], wanted: str) -> int | None:
    """Return the amount of a resource: the total if listed beside types, as in ``gpu`` and ``gpu:a100``."""
    known = {str(each["name"] or each["type"]): each["count"] for each in resources if _resource(each) == wanted}
    return known.get(wanted, sum(known.values()) if known else None)


def split_rows(record: Mapping[str, Any], rows: str) -> Iterator[Mapping[str, Any]]:
    """Yield a record unchanged, or once for each entry of its list ``rows``, reduced to that entry."""
    inner = record.get(rows) if rows else None
    if not isinstance(inner, list):
        yield record
        return
    entries: list[object] = inner or [{}]
    yield from ({**record, rows: each} for each in entries)
