"""A page about GPUs or cores: the node page with the log's unit in its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from bftrain.node_units import NODE, words_of
from bftrain_replay.drawing.figure import ChartFigure, StateRaster
from bftrain_replay.drawing.html_page import HtmlText

Part = TypeVar("Part")

_TAG: Final = re.compile(r"(<[^>]*>)")
# Fields of page parts, and keys of a picture's description, that are no words for readers
_NO_WORDS: Final = frozenset({"key", "css", "sortable"})
_NO_WORDS_IN_SPEC: Final = frozenset({"field", "expr", "calculate", "filter", "as", "type", "range", "mark"})


def in_unit(part: Part, unit: str) -> Part:
    """Return a page, or pictures, with the log's unit in the text; names of slots, tasks and files stay."""
    return part if unit == NODE else _rewritten(part, words_of(unit))


def _rewritten(part: Part, words: Callable[[str], str]) -> Part:
    found: Any = part
    if isinstance(part, HtmlText):
        found = HtmlText("".join(each if each.startswith("<") else words(each) for each in _TAG.split(part)))
    elif isinstance(part, str):
        found = words(part)
    elif isinstance(part, StateRaster):
        found = replace(part, labels=[words(label) for label in part.labels], thing=words(part.thing))
    elif isinstance(part, ChartFigure):
        found = replace(
            part,
            title=words(part.title),
            alt=words(part.alt),
            says=words(part.says),
            caption=words(part.caption),
            spec=_rewritten_spec(part.spec, words),
            narrow=_rewritten_spec(part.narrow, words),
            closer=_rewritten_spec(part.closer, words),
            raster=_rewritten(part.raster, words),
        )
    elif isinstance(part, msgspec.Struct):
        texts = {name: getattr(part, name) for name in part.__struct_fields__ if name not in _NO_WORDS}
        found = replace(part, **{name: _rewritten(text, words) for name, text in texts.items()})
    elif not isinstance(part, bytes | Mapping) and hasattr(part, "__iter__"):
        found = tuple(_rewritten(each, words) for each in part)
    return found  # type: ignore[no-any-return]  # of the same type


def _rewritten_spec(value: Any, words: Callable[[str], str]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, Mapping):
        return {key: each if key in _NO_WORDS_IN_SPEC else _rewritten_spec(each, words) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rewritten_spec(each, words) for each in value]
    return words(value) if isinstance(value, str) else value
