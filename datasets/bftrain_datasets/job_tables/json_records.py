"""JSON records: one per line, or the elements of an array, which may be a field of an object.

Lines are read one by one. Any other file is kept in memory as text, and its records are parsed one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import chain
from typing import Any, Final

import msgspec

from bftrain.errors import BadInput
from bftrain.files import BYTE_ORDER_MARK
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.raw_file import RawFile

LARGEST_BYTES: Final = 1 << 32  # largest file that is kept in memory
_PIECE_BYTES: Final = 1 << 20
MOST_DEPTH: Final = 5  # nesting of fields in a record
_LISTS: Final = ("jobs", "items", "data", "records", "rows", "results")  # keys of an object that contain its records
RESERVATIONS: Final = "slurm-reservations"  # not supported, but not jobs either
# Keys that identify JSON of formats with their own reader: all keys in one set must be present
KNOWN_BY: Final[Mapping[str, tuple[frozenset[str], ...]]] = {
    "oar": (
        frozenset({"assigned_network_address"}),
        frozenset({"dead_resources"}),
        frozenset({"network_address", "resource_id"}),
    ),
    "sge": (frozenset({"job_number", "qname"}),),
    RESERVATIONS: (frozenset({"reservations", "node_list"}), frozenset({"reservations", "last_update"})),
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
    "flux": (frozenset({"t_run", "nodelist"}), frozenset({"t_submit", "urgency"})),
}
_START: Final = re.compile(r"\s*[\[{]")
_KEYS: Final = re.compile(rb'"([^"\\]{1,100})"\s*:')
_NUMBER: Final = {"set", "number"}  # Slurm's representation of a number that may be missing or infinite
_RESOURCE: Final = {"type", "name", "count"}  # Slurm's representation of a job's resource


def keys_in(head: bytes) -> list[str]:
    """Return the keys in the head of a JSON file, by first occurrence."""
    return list(dict.fromkeys(key.decode(errors="replace") for key in _KEYS.findall(head)))


def format_of(head: bytes) -> str:
    """Return the format with its own reader that the first keys identify, or an empty text."""
    keys = set(keys_in(head))
    return next((name for name, sets in KNOWN_BY.items() if any(keys >= each for each in sets)), "")


def records(file: RawFile, tally: FindingsTally) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield each record with its line number, or its index in an array; skip other values."""
    head = file.head.lstrip()
    lines = head.startswith(b"{") and _is_record(head.partition(b"\n")[0])
    found = _lines(file) if lines else enumerate(_elements(file), start=1)
    for number, record in found:
        if isinstance(record, dict):
            yield number, record
        else:
            tally.row(number)
            tally.set_aside("malformed")


def _is_record(line: bytes) -> bool:
    """Return whether a line is a whole object without a list of records."""
    found = _parsed(line)
    return isinstance(found, dict) and not any(isinstance(found.get(name), list) for name in _LISTS)


def _lines(file: RawFile) -> Iterator[tuple[int, Any]]:
    return ((number, _parsed(line)) for number, line in file.lines() if line.strip())


def _parsed(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value, None if it is invalid."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        pass
    try:
        return json.loads(text)  # accepts NaN
    except (ValueError, RecursionError):
        return None


def content_of(file: RawFile, largest: int = LARGEST_BYTES) -> bytes:
    """Return the content of a JSON file."""
    stream, pieces = file.binary(), BytesIO()
    while pieces.tell() <= largest and (piece := stream.read(_PIECE_BYTES)):  # a read of the limit would allocate it
        pieces.write(piece)
    content = pieces.getvalue()
    if len(content) > largest:
        fix = "import a part of it, or write a record on each line, for example by: jq -c '.jobs[]'"
        raise BadInput(f"JSON of more than {largest:,} bytes", where=file.where, fix=fix)
    return content.removeprefix(BYTE_ORDER_MARK.encode())


def _elements(file: RawFile) -> Iterator[Any]:
    """Yield consecutive objects, and the elements of arrays, or of the arrays in an object with records."""
    content = content_of(file)
    try:
        document = msgspec.json.decode(content, type=list[msgspec.Raw] | dict[str, msgspec.Raw])
        if isinstance(document, dict):
            lists = [raw for name, raw in document.items() if name in _LISTS and bytes(raw).startswith(b"[")]
            found = [each for raw in lists for each in msgspec.json.decode(raw, type=list[msgspec.Raw])]
            document = found if lists else [msgspec.Raw(content)]
    except (msgspec.DecodeError, UnicodeError, RecursionError):  # several values, or an invalid one
        yield from _values(content.decode(errors="replace"), file.where)
        return
    yield from (_parsed(bytes(raw).decode(errors="replace")) for raw in document)


def _values(text: str, where: str) -> Iterator[Any]:
    scan, place = json.JSONDecoder().raw_decode, 0
    while (start := _START.match(text, place)) is not None:
        try:
            value, place = scan(text, start.end() - 1)
        except (ValueError, RecursionError) as error:
            why = error if isinstance(error, ValueError) else "nested too deep"
            raise BadInput(f"incomplete JSON: {why}", where=where, fix="fetch the file again") from error
        inner = value.items() if isinstance(value, dict) else [(_LISTS[0], value)]
        lists = [each for name, each in inner if name in _LISTS and isinstance(each, list)]
        yield from chain(*lists) if lists else [value]


def leaf_names(record: object, before: str = "", depth: int = 0) -> Iterator[str]:
    """Yield a record's field names; nested fields have dotted names."""
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


def dig(record: object, path: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return a field of a record; a list if there are several."""
    return dig_path(record, tuple(path.split(".")))


def dig_path(record: object, path: Sequence[str]) -> Any:  # noqa: ANN401 - any JSON value
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
    """Return the amount of a resource: the total if listed alongside types, as in ``gpu`` and ``gpu:a100``."""
    known = {str(each["name"] or each["type"]): each["count"] for each in resources if _resource(each) == wanted}
    return known.get(wanted, sum(known.values()) if known else None)


def field_of(records: Sequence[Mapping[str, Any]], path: str) -> list[Any]:
    """Return a field of each record."""
    found = [record.get(path) for record in records]
    if not {dict, list, type(None)} & set(map(type, found)):
        return found
    names = tuple(path.split("."))
    return [dig_path(record, names) for record in records]


def split_rows(record: Mapping[str, Any], rows: str) -> Iterator[Mapping[str, Any]]:
    """Yield a record unchanged, or once for each entry of its list ``rows``, reduced to that entry."""
    inner = record.get(rows) if rows else None
    if not isinstance(inner, list):
        yield record
        return
    entries: list[object] = inner or [{}]
    yield from ({**record, rows: each} for each in entries)
