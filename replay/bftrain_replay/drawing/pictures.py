"""Pictures: figures as files for papers, one each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bftrain_datasets.storage import whole_file
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import Figure

FORMS: Final = ("svg", "png")


def write(figures: Iterable[Figure], folder: Path, form: str) -> list[Path]:
    """Write every figure that stands for itself, without a page around it, as ``NAME.svg`` or ``NAME.png``."""
    written = []
    for figure in figures:
        if figure.chooses_time:
            continue
        path = folder / f"{figure.name}.{form}"
        content = vega.png(figure) if form == "png" else vega.svg(figure).encode()
        with whole_file(path) as file:
            file.write(content)
        written.append(path)
    return written
