"""Charts: a Vega-Lite description (see vega.github.io) with a name, texts and data.

The description of a chart over time contains no data: the chart has ``series`` or a ``raster``, which a page cuts to
the visible interval.

A raster has rows that change state over time, too many to draw individually. It stores the exact changes instead of
cells, so a page can zoom in to any interval. A pixel mixes the colours of all its states, which keeps short states
visible.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain_replay.drawing.series import StepSeries, TimeAxis, packed_floats, packed_integers
from bftrain_replay.drawing.theme import DARK, HUES, LIGHT, coloured

# A raster of tasks with more changes per pixel is drawn as a density, in cells of several pixels; see rasters.js
_CROWDED: Final = 0.5
_CELL: Final = 5  # pixels
_SCREEN: Final = (1000, 480)  # pixels of the plot on a usual screen
_TASK_HUES: Final = tuple(hue for hue in HUES if hue not in {LIGHT["used"], DARK["used"]})
_CHANGES_AT_ONCE: Final = 1 << 19  # changes sorted per batch
_LINES_AT_ONCE: Final = 16  # image lines per batch: enough for column operations, few enough for the processor's cache
_GROUP_PIXELS: Final = 13  # height of a row group's name


class StateChanges(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The changes of all rows, row after row: ``counts`` has their number in each row.

    From time ``at_s[when[i]]`` on, the row is in state ``state[i]``, until its next change or ``end_s``. The first
    change of each row is at 0. There may be millions of changes at few distinct times: each takes 8 bytes.
    """

    counts: NDArray[np.int32]
    at_s: NDArray[np.float64]
    when: NDArray[np.int32]
    state: NDArray[np.int32]
    end_s: float

    def __len__(self) -> int:
        return self.when.size

    @property
    def row(self) -> NDArray[np.int64]:
        """The row of each change."""
        return np.repeat(np.arange(self.counts.size), self.counts)

    @property
    def since_s(self) -> NDArray[np.float64]:
        """The time of each change."""
        return self.at_s[self.when]

    @property
    def begins(self) -> NDArray[np.int64]:
        """Start index of each row's changes, followed by the total number."""
        return np.concatenate(([0], np.cumsum(self.counts)))

    def rounded(self, step_s: float) -> StateChanges:
        """Return the changes with times rounded to multiples of ``step_s``; the last of several at one time counts."""
        times = np.round(self.since_s / step_s) * step_s
        return in_order(self.row, times, self.state, rows=self.counts.size, end_s=self.end_s)

    @classmethod
    def joined(cls, parts: Iterable[StateChanges]) -> StateChanges:
        """Join parts; each part contains the next rows."""
        every = list(parts)
        at_s = np.unique(np.concatenate([part.at_s for part in every]))
        return cls(
            counts=np.concatenate([part.counts for part in every]),
            at_s=at_s,
            when=np.concatenate([np.searchsorted(at_s, part.at_s).astype(np.int32)[part.when] for part in every]),
            state=np.concatenate([part.state for part in every]),
            end_s=every[0].end_s,
        )


def in_order(
    row: NDArray[Any], since_s: NDArray[np.float64], state: NDArray[Any], *, rows: int, end_s: float
) -> StateChanges:
    """Return changes in the order of rows and times; rows start in state 0.

    The last of several changes of a row at one time counts. Row, time and place become one number, because numpy sorts
    numbers several times faster than columns.
    """
    inside = since_s < (end_s or 1.0)
    row = np.concatenate((np.arange(rows, dtype=np.int32), row[inside]), dtype=np.int32)
    since_s = np.concatenate((np.zeros(rows), np.maximum(since_s[inside], 0.0)))
    state = np.concatenate((np.zeros(rows, dtype=np.int32), state[inside]), dtype=np.int32)
    times, when = np.unique(since_s, return_inverse=True)
    order = (row * np.int64(times.size) + when) * row.size + np.arange(row.size)
    order.sort()
    order %= row.size
    row, when, state = row[order], when[order], state[order]
    last = np.append((row[1:] != row[:-1]) | (when[1:] != when[:-1]), True)
    row, when, state = row[last], when[last], state[last]
    new = np.append(True, (row[1:] != row[:-1]) | (state[1:] != state[:-1]))
    row, when, state = row[new], when[new], state[new]
    used = np.bincount(when, minlength=times.size) > 0
    place = (np.cumsum(used) - 1).astype(np.int32)
    counts = np.bincount(row, minlength=rows).astype(np.int32)
    return StateChanges(counts=counts, at_s=times[used], when=place[when], state=state, end_s=end_s)


def parts_of_rows(rows: int, changes: int) -> Iterator[tuple[int, int]]:
    """Yield the first row, and the row after the last, of parts that fit into memory."""
    parts = min(-(-changes // _CHANGES_AT_ONCE), rows) or 1
    return pairwise(np.linspace(0, rows, parts + 1).astype(int).tolist())


class StateRaster(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Rows and their changes. States are indices into ``labels``; the first label means an empty cell.

    ``rows`` names each row, and ``thing`` is the noun for all rows; ``colours`` (roles such as ``@used``) match
    ``labels``, and the last colour applies to all further labels. With ``follows``, a page that shows part of the time
    hides empty rows at the top and bottom. ``groups`` has the names of row groups and the first row of each.

    ``tasks_are`` states where task names are, which readers can highlight: in ``rows``, in ``labels`` from the last
    colour on, or nowhere (empty). If they are in ``labels``, the tasks visible longest have a separate hue, unless the
    raster is ``dense``.
    """

    changes: StateChanges
    rows: Sequence[str]
    labels: Sequence[str]
    colours: Sequence[str]
    thing: str = ""
    follows: bool = False
    tasks_are: str = ""
    groups: Sequence[tuple[str, int]] = ()

    def _palette(self) -> NDArray[np.float64]:
        """Return red, green and blue of each label on a light page."""
        roles = [*self.colours, *[self.colours[-1]] * (len(self.labels) - len(self.colours))][: len(self.labels)]
        for label, hue in self.hues.items():
            roles[label] = hue
        return np.array([tuple(bytes.fromhex(colour[1:])) for colour in coloured(roles, LIGHT)], dtype=np.float64)

    @cached_property
    def dense(self) -> bool:
        """Return whether the changes are dense enough to mix to noise on a screen."""
        points = _SCREEN[0] * min(len(self.rows), _SCREEN[1])
        return self.tasks_are == "labels" and len(self.changes) > _CROWDED * points

    @cached_property
    def hues(self) -> dict[int, str]:
        """Return the labels with a separate hue: the tasks visible longest, in descending order."""
        if self.tasks_are != "labels" or self.dense:
            return {}
        at = self.changes
        until_s = np.append(at.since_s[1:], at.end_s)
        until_s[np.append(np.diff(at.row) != 0, True)] = at.end_s
        seen_s = np.bincount(at.state, weights=until_s - at.since_s, minlength=len(self.labels))
        first = len(self.colours) - 1
        order = first + np.argsort(-seen_s[first:], kind="stable")
        return {int(label): hue for label, hue in zip(order, _TASK_HUES, strict=False) if seen_s[label] > 0.0}

    @cached_property
    def _packed_changes(self) -> dict[str, str]:
        """Return the changes for rasters.js: counts by row, times (increments of places in ``at``), and states."""
        at = self.changes
        later, first = np.diff(at.when, prepend=np.int32(0)), at.begins[:-1]
        later[first] = at.when[first]
        integers = {"counts": at.counts, "later": later, "states": at.state}
        return {**{name: packed_integers(each) for name, each in integers.items()}, "at": packed_floats(at.at_s)}

    @property
    def size(self) -> int:
        """The number of characters that the changes take in a page."""
        return sum(map(len, self._packed_changes.values()))

    def packed(self, time_axis: TimeAxis) -> dict[str, Any]:
        """Return the data from which the page's script draws an image."""
        return {
            **self._packed_changes,
            "start": time_axis.position(0.0),
            "thing": self.thing,
            "follows": self.follows,
            "tasks_are": self.tasks_are,
            "groups": list(self.groups),
            "rows": list(self.rows),
            "labels": list(self.labels),
            "colours": list(self.colours),
            "hues": list(_TASK_HUES),
        }

    def image(self, width: int, height: int) -> str:
        """Return the whole time as an image of up to this size in light colours, a PNG in a data URL."""
        if self.dense:
            width, height = max(width // _CELL, 1), max(height // _CELL, 1)
        return "data:image/png;base64," + base64.b64encode(_png(self._pixels(width, height))).decode()

    def _pixels(self, width: int, height: int) -> NDArray[np.uint8]:
        """Return red, green and blue in ``height`` lines, or one line per row if there are fewer rows.

        Pixels mix their states; rare states are strengthened to stay visible.
        """
        count = len(self.rows)
        height = min(height, count)
        changes = self.changes
        span = changes.end_s or 1.0
        colours = self._palette()
        # Each complex number holds two columns, so numpy looks up indices once: red and green, blue and non-empty
        looks = np.column_stack((colours - colours[0], np.arange(len(colours)) > 0)).view(np.complex128)
        bounds = np.linspace(0, count, height + 1).astype(np.int64)
        begins = changes.begins
        picture = np.zeros((height, width, 2), dtype=np.complex128)
        for line in range(0, height, _LINES_AT_ONCE):
            rows = bounds[line : line + _LINES_AT_ONCE + 1]
            low, high = int(rows[0]), int(rows[-1])
            first, last = begins[low], begins[high]
            row = np.repeat(np.arange(low, high), changes.counts[low:high])
            # One long line of time, row after row
            line_s = np.append(row * span + changes.at_s[changes.when[first:last]], high * span)
            sums = np.zeros((line_s.size, 2), dtype=np.complex128)
            np.cumsum(looks[changes.state[first:last]] * np.diff(line_s)[:, None], axis=0, out=sums[1:])
            edges = np.linspace(low * span, high * span, (high - low) * width + 1)
            for pair in (0, 1):
                mixed = np.diff(np.interp(edges, line_s, sums[:, pair])).reshape(high - low, width)
                lines = np.add.reduceat(mixed, rows[:-1] - low) / np.diff(rows)[:, None]
                picture[line : line + _LINES_AT_ONCE, :, pair] = lines
        parts = picture.view(np.float64)
        strength = width / span / np.sqrt(np.clip(parts[..., 3:] * (width / span), 1e-9, 1.0))
        pixels: NDArray[np.uint8] = np.clip(np.round(parts[..., :3] * strength + colours[0]), 0, 255).astype(np.uint8)
        return pixels


def _png(pixels: NDArray[np.uint8]) -> bytes:
    height, width, _ = pixels.shape
    lines = np.zeros((height, 1 + 3 * width), dtype=np.uint8)  # the leading 0 byte of each line: PNG filter 0 (none)
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


_IMAGE: Final = {
    "type": "image",
    "smooth": False,
    "aspect": False,
    "align": "left",
    "baseline": "top",
    "clip": True,
    "width": {"expr": "scale('x', datum.t2) - scale('x', datum.t)"},
    "height": {"expr": "height"},
}


TOOLTIP: Final = {"expr": "datum.tooltip"}  # marks with it need rows with a field "tooltip"


def quantity(field: str, **more: object) -> dict[str, Any]:
    """Return the channel of a field of numbers."""
    return {"field": field, "type": "quantitative", **more}


def category(field: str, **more: object) -> dict[str, Any]:
    """Return the channel of a field of names."""
    return {"field": field, "type": "nominal", **more}


class ChartFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One chart.

    ``name`` is the file name and page anchor; ``says`` is the message in one sentence, ``alt`` the text for screen
    readers (default: ``says``), and ``caption`` explains how to read the chart; all are plain text.

    A chart over time has a ``time_axis``: it takes the parameters ``from_t`` and ``to_t``, and draws
    ``series`` as the data set "series". Alternatively it has a ``raster``, drawn behind it, and also takes ``from_row``
    and ``to_row``. ``spec`` may name colours by role (``"@used"``); on narrow screens, pages merge ``narrow`` into it.
    """

    name: str
    title: str
    spec: Mapping[str, Any]
    alt: str = ""
    says: str = ""
    caption: str = ""
    height: int = 260
    time_axis: TimeAxis | None = None
    series: Sequence[StepSeries] = ()
    raster: StateRaster | None = None
    narrow: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def words(self) -> str:
        """The text for screen readers."""
        return self.alt or self.says

    def described(self) -> dict[str, Any]:
        """Return the Vega-Lite description without data, width and colours."""
        params = [*(self.time_axis.window() if self.time_axis else ()), *self.spec.get("params", ())]
        if self.raster is not None:
            params += [{"name": "from_row", "value": 0}, {"name": "to_row", "value": len(self.raster.rows)}]
        data = {"data": {"name": "series", "values": []}} if self.series else {}
        return {"description": self.words, **data, **self.spec, "params": params, "height": self.height}

    def with_data(self, width: int, scale: float) -> dict[str, Any]:
        """Return the description with all data, for a chart without a page.

        The chart will be ``width`` pixels wide; its images get ``scale`` times as many pixels.
        """
        spec = self.described()
        if self.series and self.time_axis:
            spec["data"] = {"name": "series", "values": [r for part in self.series for r in part.rows(self.time_axis)]}
        elif self.raster is not None and self.time_axis:
            image = self.raster.image(int(width * scale), int(self.height * scale))
            span = self.time_axis.to_dict()
            behind = {
                "data": {"values": [{"t": span["from"], "t2": span["to"], "url": image}]},
                "mark": _IMAGE,
                "encoding": {"x": spec["encoding"]["x"], "y": {"value": 0}, "url": {"field": "url", "type": "nominal"}},
            }
            over = {name: spec.pop(name) for name in ("data", "mark", "encoding")}
            spec["layer"] = [behind, over, *self._group_names(self.raster, over["encoding"]["y"])]
        return spec

    def _group_names(self, raster: StateRaster, y: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a layer with the names of the groups that have room, each at its first row."""
        if not raster.groups:
            return []
        ends = [row for _, row in raster.groups[1:]] + [len(raster.rows)]
        room = self.height / len(raster.rows)  # pixels of a row
        names = [
            {"row": row, "name": name}
            for (name, row), end in zip(raster.groups, ends, strict=True)
            if (end - row) * room > _GROUP_PIXELS
        ]
        text = {"type": "text", "align": "left", "baseline": "top", "dx": 4, "dy": 2}
        channels = {"x": {"value": 0}, "y": {**y, "field": "row"}, "text": category("name")}
        return [{"data": {"values": names}, "mark": text, "encoding": channels}] if names else []

    def packed(self) -> dict[str, Any]:
        """Return the data from which the page's script draws it, without its series, which several charts may share."""
        packed: dict[str, Any] = {"spec": self.described(), "narrow": self.narrow}
        if self.time_axis is not None:
            packed["moments"] = self.time_axis.to_dict()
        if self.raster is not None and self.time_axis is not None:
            packed["raster"] = self.raster.packed(self.time_axis)
        return packed
