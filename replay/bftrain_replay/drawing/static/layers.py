"""Layers: the parts of a figure's description, each with its rows, its mark and its channels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bftrain_replay.drawing.static.unsupported import UnsupportedFigureError

Row = Mapping[str, Any]
Channel = Mapping[str, Any]

_EQUALS: Final = re.compile(r"datum\.(\w+) == '([^']*)'")
_INDEX: Final = re.compile(r"indexof\((\[.*\]), datum\.(\w+)\)")
_MARKS: Final = frozenset({"area", "bar", "line", "point", "rect", "rule", "square", "text"})
_CHANNELS: Final = frozenset(
    {"x", "x2", "y", "y2", "xOffset", "color", "stroke", "strokeDash", "fillOpacity", "detail", "order", "text"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkLayer:
    """Rows that are drawn with one mark; ``mark`` and ``channels`` are in Vega-Lite's words."""

    rows: Sequence[Row]
    mark: Mapping[str, Any]
    channels: Mapping[str, Channel]

    @property
    def kind(self) -> str:
        """The name of the mark."""
        return str(self.mark["type"])

    def value(self, row: Row, channel: str) -> Any:  # noqa: ANN401 - a row holds what it likes
        """Return what a row has for a channel; nothing if the layer lacks the channel."""
        found = self.channels.get(channel, {})
        if "field" in found:
            return row.get(found["field"])
        return found.get("datum", found.get("value"))

    def groups(self, *channels: str) -> Iterator[list[Row]]:
        """Give the rows that agree in all of these channels, in the order in which they come first."""
        found: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.rows:
            found.setdefault(tuple(self.value(row, channel) for channel in channels), []).append(row)
        yield from found.values()


def layers_of(spec: Mapping[str, Any], rows: Sequence[Row]) -> list[MarkLayer]:
    """Return the layers of a description, from the lowest to the top; ``rows`` are the data it does not hold itself."""
    return list(_layers(spec, rows, {}))


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``below`` with the entries of ``above``, mappings within them merged in the same way."""
    merged = dict(below)
    for name, value in above.items():
        both = isinstance(value, Mapping) and isinstance(below.get(name), Mapping)
        merged[name] = laid_over(below[name], value) if both else value
    return merged


def _layers(spec: Mapping[str, Any], rows: Sequence[Row], shared: Mapping[str, Channel]) -> Iterator[MarkLayer]:
    if unknown := set(spec) & {"hconcat", "vconcat", "concat", "facet", "repeat"}:
        raise UnsupportedFigureError(f"'{unknown.pop()}'")
    rows = spec["data"]["values"] if spec.get("data", {}).get("values") else rows
    for step in spec.get("transform", ()):
        rows = _transformed(step, rows)
    own = spec.get("encoding", {})
    channels = {**shared, **{name: {**shared.get(name, {}), **channel} for name, channel in own.items()}}
    if "layer" in spec:
        for part in spec["layer"]:
            yield from _layers(part, rows, channels)
        return
    if "mark" not in spec:
        raise UnsupportedFigureError("a layer without a mark")
    mark = {"type": spec["mark"]} if isinstance(spec["mark"], str) else spec["mark"]
    if mark["type"] not in _MARKS:
        raise UnsupportedFigureError(f"mark '{mark['type']}'")
    if unknown := set(channels) - _CHANNELS:
        raise UnsupportedFigureError(f"channel '{unknown.pop()}'")
    yield _aggregated(MarkLayer(rows=rows, mark=mark, channels=channels))


def _transformed(step: Mapping[str, Any], rows: Iterable[Row]) -> list[Row]:
    """Apply one of the transformations that our figures use."""
    if found := _EQUALS.fullmatch(str(step.get("filter", ""))):
        return [row for row in rows if row.get(found[1]) == found[2]]
    if found := _INDEX.fullmatch(str(step.get("calculate", ""))):
        order = json.loads(found[1])
        return [{**row, step["as"]: order.index(row[found[2]])} for row in rows]
    raise UnsupportedFigureError(f"transformation {dict(step)}")


def _aggregated(layer: MarkLayer) -> MarkLayer:
    """Take the mean of ``y`` over all rows of one ``x`` and colour, where a layer asks for it."""
    y = layer.channels.get("y", {})
    if "aggregate" not in y:
        return layer
    if y["aggregate"] != "mean":
        raise UnsupportedFigureError(f"aggregate '{y['aggregate']}'")
    rows = [
        {**same[0], y["field"]: _mean([float(row[y["field"]]) for row in same])} for same in layer.groups("x", "color")
    ]
    return MarkLayer(rows=rows, mark=layer.mark, channels=layer.channels)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
