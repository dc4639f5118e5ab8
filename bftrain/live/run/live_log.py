"""The log of a live run: a line for each event with its time and level, as text, JSON or for journald."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

LogFormat = Literal["text", "json"]
_PRIORITIES: Final = {"info": 6, "warning": 4}  # of syslog


@dataclass(frozen=True, slots=True)
class LiveLog:
    """Writes lines with ``write``; failures, such as a full disk, are ignored. ``clock`` returns the time."""

    write: Callable[[str], None]
    form: LogFormat = "text"
    for_journald: bool = False
    clock: Callable[[], float] = time.time

    def info(self, text: str) -> None:
        """Log an event of normal operation."""
        self._line("info", text)

    def warning(self, text: str) -> None:
        """Log a warning."""
        self._line("warning", text)

    def _line(self, level: str, text: str) -> None:
        moment = datetime.fromtimestamp(self.clock(), UTC)
        if self.form == "json":
            at = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            line = json.dumps({"time": at, "level": level, "text": text}, ensure_ascii=False)
        elif self.for_journald:  # it knows the time, and the priority by this prefix
            line = "\n".join(f"<{_PRIORITIES[level]}>{part}" for part in text.splitlines() or [""])
        else:
            line = f"{moment.astimezone().isoformat(sep=' ', timespec='seconds')} {level}: {text}"
        with suppress(OSError):
            self.write(line)


def writes_to_journald(descriptor: int) -> bool:
    """Return whether a file descriptor leads to journald, as systemd announces it."""
    try:
        about = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM", "") == f"{about.st_dev}:{about.st_ino}"
