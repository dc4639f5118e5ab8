"""Pictures: figures as files for papers, one each."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bftrain.files import HEAD_BYTES, check_replaceable, head_of, whole_file
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import ChartFigure

FORMS: Final = ("svg", "png")
_SVG_MARK: Final = "<!-- drawn by bftrain -->"
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_HEADER: Final = len(_PNG) + 4 + 4 + 13 + 4  # the mark of PNG, and a chunk: length, name, 13 bytes, sum
_TEXT: Final = b"tEXt"
_PNG_MARK: Final = _TEXT + b"Software\0bftrain"


def write(figures: Iterable[ChartFigure], folder: Path, form: str) -> list[Path]:
    """Write every figure that stands for itself, without a page around it, as ``NAME.svg`` or ``NAME.png``.

    If any of these files is there and was not drawn by bftrain, it is named and nothing is written.
    """
    chosen = {folder / f"{figure.name}.{form}": figure for figure in figures if not figure.chooses_time}
    for path in chosen:
        check_replaceable(path, is_own)
    for path, figure in chosen.items():
        content = _png(figure) if form == "png" else f"{vega.svg(figure)}\n{_SVG_MARK}\n".encode()
        with whole_file(path) as file:
            file.write(content)
    return list(chosen)


def is_own(path: Path) -> bool:
    """Return whether bftrain drew this picture."""
    head = head_of(path)
    if head.startswith(_PNG):
        return _PNG_MARK in head
    with path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - HEAD_BYTES, 0))
        return _SVG_MARK.encode() in file.read()


def _png(figure: ChartFigure) -> bytes:
    """Draw a figure, and say after its first chunk, the header, by which program."""
    drawn = vega.png(figure)
    size, sum_ = struct.pack(">I", len(_PNG_MARK) - len(_TEXT)), struct.pack(">I", zlib.crc32(_PNG_MARK))
    return drawn[:_PNG_HEADER] + size + _PNG_MARK + sum_ + drawn[_PNG_HEADER:]
