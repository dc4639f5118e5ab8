"""Racks and switches of a cluster, from Slurm topology files, rack lists, or node names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from bftrain.errors import BadInput
from bftrain.files import CsvFile, whole_text
from bftrain.node_units import host_of, node_of
from bftrain.nodesets import expand

BY_NAME: Final = "*"  # replaces a rack's name: number of trailing numbers in a node's name outside the rack
NAMES: Final = "names:"
KIND: Final = "topology file"
_MOST_NUMBERS: Final = 4  # limit in node names
FORMS: Final = (
    "give Slurm's topology.conf, what scontrol show topology prints, lines such as r1: n[1-32], "
    "a .csv with the columns node and rack, or names:1 where a rack is a node's name without its last number"
)
_WORDS: Final = re.compile(r"(\w+)=(\S+)")
_LEAVES: Final = ("switchname", "blockname")
_LINE: Final = re.compile(r"\s*([^\s:=#]+)\s*[:=]?\s+(\S+)\s*")
_NUMBERS: Final = re.compile(r"(\d+)")


def load_topology(given: str) -> dict[str, str]:
    """Return the node set of each rack of a file, or by ``names:N``; the switches nearest to the nodes count.

    >>> load_topology("names:1")
    {'*': '1'}
    """
    if given.startswith(NAMES):
        number = given.removeprefix(NAMES)
        if not (number.isdecimal() and 1 <= int(number) <= _MOST_NUMBERS):
            what = f"{given!r:.40} must be {NAMES} and a number from 1 to {_MOST_NUMBERS}"
            raise BadInput(what, where="--topology", fix="such as names:1")
        return {BY_NAME: number}
    path = Path(given)
    if not path.is_file():
        raise BadInput("there is no such file", where=given, fix=FORMS)
    found: dict[str, list[str]] = {}
    for rack, nodes in _csv(path) if path.suffix.lower() == ".csv" else _racks(whole_text(path, KIND)):
        found.setdefault(rack, []).append(nodes)
    if not found:
        raise BadInput("names no racks", where=str(path), fix=FORMS)
    racks = {rack: ",".join(sets) for rack, sets in found.items()}
    rack_of(racks, str(path))
    return racks


def rack_of(racks: Mapping[str, str], where: str = "racks") -> Callable[[str], str]:
    """Return a function from a node, or the node of a GPU, to its rack; empty if unknown."""
    if BY_NAME in racks:
        numbers = int(racks[BY_NAME])
        return lambda name: _shortened(node_of(name), numbers)
    known: dict[str, str] = {}
    for rack, nodes in racks.items():
        try:
            names = expand(nodes)
        except ValueError as error:
            raise BadInput(
                f"{error}", where=f"{where}: rack '{rack}'", fix="write a node set such as n[1-32]"
            ) from None
        for name in names:
            if known.setdefault(name, rack) != rack:
                what = f"node '{name}' is in the racks '{known[name]}' and '{rack}'"
                raise BadInput(what, where=where, fix="assign each node to one")
    return lambda name: known.get(node_of(name), "")


def place_of(racks: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function from a node to its place: a GPU's or core's host, a node's rack if racks are known."""
    if not racks:
        return host_of
    rack = rack_of(racks)
    return lambda name: host_of(name) or rack(name)


def _shortened(node: str, numbers: int) -> str:
    """Return a name without its last numbers and their separators; empty if it has fewer numbers."""
    parts = _NUMBERS.split(node)
    return "".join(parts[: -2 * numbers]).rstrip("-_.") if len(parts) > 2 * numbers else ""


def _csv(path: Path) -> Iterator[tuple[str, str]]:
    rows = CsvFile(path)
    header = [cell.strip().lower() for cell in rows.header]
    if not {"node", "rack"} <= set(header):
        raise BadInput("lacks the columns node and rack", where=str(path), fix=FORMS)
    for cells in rows.rows():
        row = dict(zip(header, cells, strict=False))
        if row.get("node", "").strip() and row.get("rack", "").strip():
            yield row["rack"].strip(), row["node"].strip()


def _racks(text: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in text.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#")]
    words = [{key.lower(): value for key, value in _WORDS.findall(line)} for line in lines]
    if any(leaf in found for found in words for leaf in _LEAVES):
        for found in words:
            name = next((found[leaf] for leaf in _LEAVES if leaf in found), "")
            if name and "nodes" in found and not {"switches", "blocks"} & found.keys():
                yield name, found["nodes"]
    else:
        yield from (match.groups() for line in lines if (match := _LINE.fullmatch(line)))  # type: ignore[misc]  # two groups
