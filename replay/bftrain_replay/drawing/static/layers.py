"""Layers: the parts of a chart's description, each with its rows, mark, channels and colours, and the legend."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from bftrain_replay.drawing.theme import HUES


class UnsupportedFigureError(Exception):
    """A chart uses a part of Vega-Lite that static drawing lacks; Vega has to draw it."""


Row = Mapping[str, Any]
Channel = Mapping[str, Any]

_EQUALS: Final = re.compile(r"datum\.(\w+) == '([^']*)'")
_INDEX: Final = re.compile(r"indexof\((\[.*\]), datum\.(\w+)\)")
_MARKS: Final = frozenset({"area", "bar", "line", "point", "rect", "rule", "square", "text"})
_CHANNELS: Final = frozenset(
    {"x", "x2", "y", "y2", "xOffset", "color", "stroke", "strokeDash", "fillOpacity", "detail", "order", "text"}
)


class MarkLayer(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that are drawn with one mark; ``mark`` and ``channels`` are in Vega-Lite's words."""

    rows: Sequence[Row]
    mark: Mapping[str, Any]
    channels: Mapping[str, Channel]

    @property
    def kind(self) -> str:
        """The name of the mark."""
        return str(self.mark["type"])

    def value(self, row: Row, channel: str) -> Any:  # noqa: ANN401 - a row holds what it likes
        """Return the value of a row for a channel; ``None`` if the layer lacks the channel."""
        found = self.channels.get(channel, {})
        if "field" in found:
            return row.get(found["field"])
        return found.get("datum", found.get("value"))

    def groups(self, *channels: str) -> Iterator[list[Row]]:
        """Yield the rows that agree in all of these channels, in order of first appearance."""
        found: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.rows:
            found.setdefault(tuple(self.value(row, channel) for channel in channels), []).append(row)
        yield from found.values()


def layers_of(spec: Mapping[str, Any], rows: Sequence[Row]) -> list[MarkLayer]:
    """Return the layers of a description, from the lowest to the top; ``rows`` are the data it does not hold itself."""
    return list(_layers(spec, rows, {}))


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``below`` with the entries of ``above``, merged recursively."""
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
    if found := _EQUALS.fullmatch(str(step.get("filter", ""))):
        return [row for row in rows if row.get(found[1]) == found[2]]
    if found := _INDEX.fullmatch(str(step.get("calculate", ""))):
        order = json.loads(found[1])
        return [{**row, step["as"]: order.index(row[found[2]])} for row in rows]
    raise UnsupportedFigureError(f"transformation {dict(step)}")


def _aggregated(layer: MarkLayer) -> MarkLayer:
    """Return the layer with means of ``y`` over all rows of one ``x`` and colour, if it asks for them."""
    y = layer.channels.get("y", {})
    if "aggregate" not in y:
        return layer
    if y["aggregate"] != "mean":
        raise UnsupportedFigureError(f"aggregate '{y['aggregate']}'")
    field = y["field"]
    rows = [
        {**same[0], field: sum(float(row[field]) for row in same) / len(same)} for same in layer.groups("x", "color")
    ]
    return replace(layer, rows=rows)


T = TypeVar("T")

_DEFAULT: Final = "@used"
_SOLID: Final = (1, 0)
_DOT: Final = 2  # pixels of a dash that looks like a dot


class KeyEntry(msgspec.Struct, frozen=True):
    """One entry of a legend: a square or a line, in its colour."""

    name: str
    colour: str
    line: bool = False
    style: str = "solid"  # of a line, in CSS

    @property
    def html(self) -> str:
        """The entry as HTML."""
        colour = css_colour(self.colour)
        line, square = f'class="stroke" style="border-top:3px {self.style} {colour}"', f'style="background:{colour}"'
        return f"<span><i {line if self.line else square}></i>{escape(self.name)}</span>"


def css_colour(colour: str) -> str:
    """Return a colour for CSS: roles are variables of the page, so that they follow its theme."""
    return f"var(--{colour[1:]})" if colour.startswith("@") else colour


def colour_of(layer: MarkLayer, row: Row, channel: str = "color") -> str:
    """Return the colour of a row, as a role or in hex."""
    described = layer.channels.get(channel)
    if described is None:
        return str(layer.mark.get(channel, _DEFAULT if channel == "color" else "transparent"))
    value = layer.value(row, channel)
    scale = described.get("scale", {})
    if "value" in described or scale is None:
        return str(value)
    if scale.get("type") == "quantize":
        return _quantized(layer, float(value), scale["range"])
    return str(_entry(_domain(layer, channel), scale.get("range", HUES), value))


def dashes_of(layer: MarkLayer, row: Row) -> Sequence[float]:
    """Return the dashes of a row's line; empty for a solid line."""
    described = layer.channels.get("strokeDash")
    if described is None:
        return tuple(layer.mark.get("strokeDash", ()))
    dashes = _entry(_domain(layer, "strokeDash"), described["scale"]["range"], layer.value(row, "strokeDash"))
    return () if tuple(dashes) == _SOLID else tuple(dashes)


def key_html(layers: Sequence[MarkLayer], extra: str = "") -> str:
    """Return the legend of colours and dashes as HTML, which wraps; '' if it is empty."""
    titles, entries = list[str](), dict[str, KeyEntry]()
    for layer in layers:
        title, found = _entries(layer)
        titles += [title] if title and title not in titles else []
        for entry in found:
            entries.setdefault(entry.name, entry)
    if not entries and not extra:
        return ""
    words = [f"<span>{escape(title)}:</span>" for title in titles]
    words += [entry.html for entry in entries.values()]
    return f'<p class="key">{"".join(words)}{f"<span>{escape(extra)}</span>" if extra else ""}</p>'


def _entries(layer: MarkLayer) -> tuple[str, list[KeyEntry]]:
    title, found = "", dict[str, KeyEntry]()
    for channel in ("color", "strokeDash"):  # dashes of the names that colours have are said in one
        described = layer.channels.get(channel, {"legend": None})
        scale, look = described.get("scale", {}), described.get("legend", {})
        if look is None or scale is None or "value" in described or scale.get("type") == "quantize":
            continue
        title = title or str(look.get("title") or "")
        domain = _domain(layer, channel)
        for value in look.get("values", domain):
            name, entry = str(value), _entry(domain, scale.get("range", HUES), value)
            if channel == "color":
                found[name] = KeyEntry(name, str(entry), look.get("symbolType") == "stroke")
                continue
            known = found.get(name, KeyEntry(name, "@soft", line=True))
            style = "solid" if tuple(entry) == _SOLID else "dotted" if entry[0] <= _DOT else "dashed"
            found[name] = replace(known, style=style)
    return title, list(found.values())


def _domain(layer: MarkLayer, channel: str) -> list[Any]:
    described = layer.channels[channel]
    scale = described.get("scale") or {}
    if "domain" in scale:
        return list(scale["domain"])
    return list(described.get("sort") or dict.fromkeys(layer.value(row, channel) for row in layer.rows))


def _entry(domain: Sequence[Any], entries: Sequence[T], value: object) -> T:
    if value not in domain:
        raise UnsupportedFigureError(f"value '{value}' outside of its domain")
    return entries[domain.index(value) % len(entries)]


def _quantized(layer: MarkLayer, value: float, entries: Sequence[str]) -> str:
    values = [float(layer.value(row, "color")) for row in layer.rows]
    low, high = min(values), max(values)
    step = int((value - low) / ((high - low) or 1.0) * len(entries))
    return str(entries[min(step, len(entries) - 1)])
