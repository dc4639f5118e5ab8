"""Colours and dashes of a layer's rows, and the key that names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final, TypeVar

from bftrain_replay.drawing.static.layers import MarkLayer, Row
from bftrain_replay.drawing.static.unsupported import UnsupportedFigureError
from bftrain_replay.drawing.theme import HUES

T = TypeVar("T")

_DEFAULT: Final = "@used"
_SOLID: Final = (1, 0)
_DOT: Final = 2  # pixels of a dash that looks like a dot


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One name in the key to a picture: a square or a line, in its colour."""

    name: str
    colour: str
    line: bool = False
    style: str = "solid"  # of a line, in CSS


def css_colour(colour: str) -> str:
    """Return a colour as the page knows it: roles are its variables, so that they follow from light to dark."""
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
    """Return the dashes of a row's line; nothing if it is drawn through."""
    described = layer.channels.get("strokeDash")
    if described is None:
        return tuple(layer.mark.get("strokeDash", ()))
    dashes = _entry(_domain(layer, "strokeDash"), described["scale"]["range"], layer.value(row, "strokeDash"))
    return () if tuple(dashes) == _SOLID else tuple(dashes)


def key_html(layers: Sequence[MarkLayer], extra: str = "") -> str:
    """Return the key to the colours and dashes of a picture as HTML, which breaks into lines; nothing to say: ''."""
    titles, entries = list[str](), dict[str, KeyEntry]()
    for layer in layers:
        title, found = _entries(layer)
        titles += [title] if title and title not in titles else []
        for entry in found:
            entries.setdefault(entry.name, entry)
    if not entries and not extra:
        return ""
    words = [f"<span>{escape(title)}:</span>" for title in titles]
    words += map(_entry_html, entries.values())
    return f'<p class="key">{"".join(words)}{f"<span>{escape(extra)}</span>" if extra else ""}</p>'


def _entries(layer: MarkLayer) -> tuple[str, list[KeyEntry]]:
    title, found = "", list[KeyEntry]()
    for channel in ("color", "strokeDash"):
        described = layer.channels.get(channel)
        if not _has_key(described) or described is None:
            continue
        look = described.get("legend", {})
        title = title or str(look.get("title") or "")
        found += _entries_of(layer, channel, look)
    names = dict[str, KeyEntry]()
    for entry in found:  # colours come first; dashes of the same names are said in one
        first = names.get(entry.name)
        names[entry.name] = KeyEntry(entry.name, first.colour, first.line, entry.style) if first else entry
    return title, list(names.values())


def _has_key(described: Mapping[str, Any] | None) -> bool:
    if described is None or described.get("legend", {}) is None or described.get("scale", {}) is None:
        return False
    return "value" not in described and described.get("scale", {}).get("type") != "quantize"


def _entries_of(layer: MarkLayer, channel: str, look: Mapping[str, Any]) -> Iterator[KeyEntry]:
    described = layer.channels[channel]
    scale = described.get("scale", {})
    line = look.get("symbolType") == "stroke"
    domain = _domain(layer, channel)
    for name in look.get("values", domain):
        if channel == "color":
            yield KeyEntry(str(name), str(_entry(domain, scale.get("range", HUES), name)), line)
        else:
            yield KeyEntry(str(name), "@soft", line=True, style=_style(_entry(domain, scale["range"], name)))


def _entry_html(entry: KeyEntry) -> str:
    colour = css_colour(entry.colour)
    if not entry.line:
        look = f'style="background:{colour}"'
    else:
        look = f'class="stroke" style="border-top:3px {entry.style} {colour}"'
    return f"<span><i {look}></i>{escape(entry.name)}</span>"


def _style(dashes: Sequence[float]) -> str:
    return "solid" if tuple(dashes) == _SOLID else "dotted" if dashes[0] <= _DOT else "dashed"


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
