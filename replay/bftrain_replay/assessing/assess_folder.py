"""The folder of an assessment: its figures as JSON, and the page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bftrain import summaries
from bftrain.files import write_text
from bftrain.result_folder import ResultKind
from bftrain_replay.assessing.assess_page import page
from bftrain_replay.assessing.assessment import LogAssessment
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.html_page import html

FIGURES: Final = "assess.json"
PAGE: Final = "assess.html"
KIND: Final = ResultKind(title="assessment", form="bftrain assess", summary=FIGURES, names=frozenset({FIGURES, PAGE}))


def write(found: LogAssessment, folder: Path, *, static: bool = False) -> None:
    """Write the figures and the page; a ``static`` page needs no JavaScript."""
    if vega.available():
        write_text(folder / PAGE, html(page(found), static=static))
    write_text(folder / FIGURES, summaries.to_json(found.to_dict()))
