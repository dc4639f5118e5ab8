"""Where a script is: the line of it that a thread is in, found without that thread's help."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Final

_STANDARD: Final = os.path.dirname(os.path.realpath(os.__file__)) + os.sep  # noqa: PTH120 - compared with paths as text
_PACKAGES: Final = ("site-packages", "dist-packages")
_SKIPPED: Final = ("torch", "horovod", "bftrain_elastic")


def script_line(thread: int) -> str:
    """Return the innermost line of the script that a thread is in, such as ``fit.py:23 in train``; "" if in none."""
    frame: FrameType | None = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way to other threads
    while frame is not None:
        if _is_of_script(frame.f_code.co_filename):
            name = os.path.basename(frame.f_code.co_filename)  # noqa: PTH119 - some are no paths
            return f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


def _is_of_script(filename: str) -> bool:
    """Return whether code belongs neither to us, nor to torch or Horovod, nor to Python itself."""
    if filename.startswith("<frozen "):
        return False
    path = os.path.realpath(filename)
    package = _package(path)
    if package:
        return package not in _SKIPPED
    return not path.startswith((_STANDARD, _OURS))


def _package(path: str) -> str:
    """Return which installed package a file is of; "" if of none."""
    parts = Path(path).parts
    for folder in _PACKAGES:
        if folder in parts[:-1]:
            return parts[parts.index(folder) + 1].removesuffix(".py")
    return ""


_OURS: Final = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep  # noqa: PTH120 - as above
