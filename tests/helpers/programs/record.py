"""Record what a training of the tests does, in a file that outlives every process of it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Final

ENDLESS: Final = 10**9


class Record:
    """Append lines of JSON to ``FOLDER/record``, and read from ``FOLDER/limit`` how many steps are asked for."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._file = os.open(self._folder / "record", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def write(self, what: str, **more: object) -> None:
        """Append one line with a single system call, so that lines of several processes do not mix."""
        line = {"what": what, "t": time.time(), "pid": os.getpid(), "node": os.environ.get("BFTRAIN_NODE", ""), **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def limit(self) -> int:
        """Return the number of the last step; without a file the training never ends."""
        try:
            return int((self._folder / "limit").read_text() or ENDLESS)
        except FileNotFoundError:
            return ENDLESS
