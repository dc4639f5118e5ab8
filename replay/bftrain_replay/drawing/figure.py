"""Figure: one picture with its name, its words, and what it is drawn from.

The picture is described in Vega-Lite, whose words docs are at vega.github.io. The description has no data: a figure
over time has ``series`` or a ``raster``, which a page cuts to the part that its reader looks at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bftrain_replay.drawing.raster import StateRaster
from bftrain_replay.drawing.series import StepSeries
from bftrain_replay.drawing.time_axis import TimeAxis

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartFigure:
    """One picture.

    ``name`` is its file name and its place in a page; ``alt`` says what it shows to those who cannot see it; ``says``
    (plain text) what is seen, in a sentence; ``caption`` how to read it.

    A figure over time has ``moments``: it takes the parameters ``from_t`` and ``to_t``, and draws ``series`` as the
    data of that name; or it has a ``raster``, drawn behind it, and takes ``from_row`` and ``to_row`` too. ``spec`` may
    name colours by role (``"@used"``); on a narrow screen ``narrow`` is laid over it.
    """

    name: str
    title: str
    alt: str
    spec: Mapping[str, Any]
    says: str = ""
    caption: str = ""
    height: int = 260
    moments: TimeAxis | None = None
    series: Sequence[StepSeries] = ()
    raster: StateRaster | None = None
    chooses_time: bool = False  # its selection "brush" is the part of the time that all figures over time show
    stepped: bool = True  # draw each step; False: points at the begin of each
    width: int | None = None  # pixels at most, for what would look lost when wide
    narrow: Mapping[str, Any] = field(default_factory=dict)

    def described(self) -> dict[str, Any]:
        """Give the whole description in Vega-Lite but for the data, width and colours."""
        params = [*(self.moments.window() if self.moments else ()), *self.spec.get("params", ())]
        if self.raster is not None:
            params += [{"name": "from_row", "value": 0}, {"name": "to_row", "value": len(self.raster.rows)}]
        data = {"data": {"name": "series", "values": []}} if self.series else {}
        return {"description": self.alt, **data, **self.spec, "params": params, "height": self.height}

    def with_data(self, theme: Mapping[str, str], width: int, scale: float) -> dict[str, Any]:
        """Give the description with the data in it, all of the time, for a picture that stands alone.

        It will be ``width`` wide; pictures in it get ``scale`` times as many pixels.
        """
        spec = self.described()
        if self.series and self.moments:
            spec["data"] = {"name": "series", "values": [r for part in self.series for r in part.rows(self.moments)]}
        elif self.raster is not None and self.moments:
            image = self.raster.image(theme, int(width * scale), int(self.height * scale))
            span = self.moments.to_dict()
            behind = {
                "data": {"values": [{"t": span["from"], "t2": span["to"], "url": image}]},
                "mark": _IMAGE,
                "encoding": {"x": spec["encoding"]["x"], "y": {"value": 0}, "url": {"field": "url", "type": "nominal"}},
            }
            over = {name: spec.pop(name) for name in ("data", "mark", "encoding")}
            spec["layer"] = [behind, over]
        return spec

    def packed(self) -> dict[str, Any]:
        """Give what page.js draws it from."""
        packed: dict[str, Any] = {"spec": self.described(), "narrow": self.narrow}
        if self.moments is not None:
            packed["moments"] = self.moments.to_dict()
            packed["chooses_time"] = self.chooses_time
            packed["series"] = []  # the page's to fill: several figures may draw the same
        if self.raster is not None and self.moments is not None:
            packed["raster"] = self.raster.packed(self.moments)
        return packed
