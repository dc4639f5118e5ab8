"""Reduce files to text that can be compared: no measured times, no temporary paths, no large tables in full."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable
from getpass import getuser
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

from bftrain import load_log

MAX_TABLE_LINES = 12  # longer tables are reduced to their header, sums and digest
PAGE_DATA = re.compile(r'<script type="application/json" id="page-data">(.*?)</script>', re.DOTALL)
# JSON fields that a clock or the machine determines
MEASURED = re.compile(r"decide_ms|solve_ms|^solver_ms|_per_s$|wall|run_time|elapsed_s|^version$|_version$")


def text(content: str, folder: Path) -> str:
    """Return a command's output without the temporary folder, ANSI codes and trailing blanks."""
    content = content.replace(str(folder), "DIR").replace(sys.executable, "PYTHON")
    content = re.sub(rf'(?<=name = "){getuser()}(?=")|(?<=bftrain-){getuser()}\b', "USER", content)  # of examples
    lines = (line.rstrip() for line in content.splitlines())
    return "\n".join(_without_clock(line) for line in lines if not re.search(r"about .* left$", line))  # of progress


def _without_clock(line: str) -> str:
    """Return a line without the figures that a clock determines, and without the widths of columns that hold them."""
    if measured := re.search(r"decision time, (?:median(?: / p99)?|p99)|run time of the replay|wall ms", line):
        return f"{line[: measured.end()]} MEASURED"
    line = re.sub(r"(?<=\S)  +", "  ", re.sub("──+", "──", line))
    return re.sub(r"\d[\d.,]* ms|about \d+ \w+;", "MEASURED", line)


def output(content: str, folder: Path) -> str:
    """Return what a command prints, and JSON with one field on a line."""
    try:
        return json_text(json.loads(content), folder)
    except ValueError:
        return text(content, folder)


def file(path: Path, folder: Path) -> str:
    """Return the reduced content of a result file."""
    reduce = BY_SUFFIX.get(path.suffix, _digest)
    return reduce(path, folder)


def json_text(value: object, folder: Path) -> str:
    """Return a value as indented JSON without measured times."""
    return text(json.dumps(_without_times(value), indent=1, sort_keys=True), folder)


def _json(path: Path, folder: Path) -> str:
    return json_text(json.loads(path.read_text()), folder)


def _json_lines(path: Path, folder: Path) -> str:
    return "\n".join(json_text(json.loads(line), folder) for line in sorted(path.read_text().splitlines()))


def _without_times(value: object) -> object:
    if isinstance(value, dict):
        return {key: "MEASURED" if MEASURED.search(key) else _without_times(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_times(item) for item in value]
    return value


def _table(path: Path, folder: Path) -> str:
    lines = path.read_text().splitlines()
    rows = list(csv.DictReader(io.StringIO("\n".join(lines)), restkey="more", restval=""))
    measured = [name for name in (rows[0] if rows else ()) if MEASURED.search(name)]
    for row in rows:
        row.update(dict.fromkeys(measured, "MEASURED"))
        name, *others = row
        if MEASURED.search(row[name]):  # a table with a line for each figure
            row.update(dict.fromkeys(others, "MEASURED"))
    if len(rows) <= MAX_TABLE_LINES:
        return text("\n".join([lines[0] if lines else "", *(",".join(map(str, row.values())) for row in rows)]), folder)
    digest = sha256(json.dumps(rows).encode()).hexdigest()[:16]
    sums = [f"  {name}: {_sum_of(rows, name)}" for name in rows[0]]
    return "\n".join(
        [f"{len(rows)} rows, digest {digest}; the sum or the number of distinct values of each column:", *sums]
    )


def _sum_of(rows: list[dict[str, str]], name: str) -> str:
    values = [str(row.get(name, "")) for row in rows]
    try:
        return f"sum {sum(float(value) for value in values if value):.10g}"
    except ValueError:
        return f"{len(set(values))} distinct"


def _log(path: Path, _folder: Path) -> str:
    return f"log {load_log(path).sha256}"


def _page(path: Path, folder: Path) -> str:
    content = path.read_text()
    data = PAGE_DATA.search(content)
    parser = _PageText()
    parser.feed(content)
    charts = _chart_data(json.loads(data[1])) if data else []
    return text("\n".join([*parser.lines(), *charts]), folder)


def _chart_data(data: object, path: str = "data") -> list[str]:
    """Return a line for each part of the data behind a page's charts: its size and digest."""
    if isinstance(data, dict) and path.count(".") < 2:
        return [line for key, value in sorted(data.items()) for line in _chart_data(value, f"{path}.{key}")]
    encoded = json.dumps(_without_times(data), sort_keys=True)
    shown = (
        encoded
        if len(encoded) <= 60
        else f"{len(encoded)} characters, digest {sha256(encoded.encode()).hexdigest()[:16]}"
    )
    return [f"[{path}] {shown}"]


class _PageText(HTMLParser):
    """The text of a page, a line for each paragraph, heading, table row and label of a picture."""

    INLINE: Final = {"strong", "em", "b", "i", "a", "code", "span", "td", "th", "abbr", "sub", "sup", "tspan", "small"}

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[str] = []
        self._hidden = 0
        self._in_picture = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "style"}:
            self._hidden += 1
        self._in_picture = self._in_picture or tag == "svg"
        if tag not in self.INLINE:
            self._parts.append("\n")
        if tag in {"td", "th"}:
            self._parts.append(" | ")
        self._parts.extend(f"[{value}] " for name, value in attrs if name in {"title", "aria-label"} and value)

    def handle_endtag(self, tag: str) -> None:
        if tag in {"script", "style"}:
            self._hidden -= 1
        self._in_picture = self._in_picture and tag != "svg"
        if tag not in self.INLINE:
            self._parts.append("\n")

    def handle_data(self, data: str) -> None:
        scale = self._in_picture and re.fullmatch(r"[\d.,\s]*", data)  # of an axis, which may be one of measured times
        if not self._hidden and not scale:
            self._parts.append(re.sub(r"\s+", " ", data))

    def lines(self) -> list[str]:
        return [stripped for line in "".join(self._parts).splitlines() if (stripped := line.strip())]


def _digest(path: Path, _folder: Path) -> str:
    return f"digest {sha256(path.read_bytes()).hexdigest()[:16]}"


def _verbatim(path: Path, folder: Path) -> str:
    return text(path.read_text(), folder)


BY_SUFFIX: Final[dict[str, Callable[[Path, Path], str]]] = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".csv": _table,
    ".npz": _log,
    ".html": _page,
    ".toml": _verbatim,
    ".txt": _verbatim,
    ".md": _verbatim,
}
