"""Logging of a live run: lines on stderr as text, JSON or for journald, and the latest warnings for its status.

Modules log to ``logging.getLogger(__name__)``. Everything below ``bftrain.live`` passes through the handlers set here.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Final, Literal

from bftrain.live import timeouts
from bftrain.live.model.schemas import Remarked

LogFormat = Literal["text", "json", "demo"]
LOGGER: Final = logging.getLogger("bftrain.live")
_WARNINGS: Final = 50


class RecentWarnings(logging.Handler):
    """Keeps the latest warnings, each once with the number of its repetitions.

    Other handlers skip records that it marks as ``repeated``: they were logged a short time ago.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._known: OrderedDict[str, Remarked] = OrderedDict()
        LOGGER.handlers.insert(0, self)  # the other handlers read its mark, so it comes first

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning."""
        text = record.getMessage()
        before = self._known.pop(text, None)
        self._known[text] = Remarked(time_s=record.created, text=text, times=1 + (before.times if before else 0))
        while len(self._known) > _WARNINGS:
            self._known.popitem(last=False)
        record.repeated = before is not None and record.created - before.time_s <= timeouts.TIMEOUTS.repeated_notice_s

    def close(self) -> None:
        """Stop keeping warnings."""
        LOGGER.removeHandler(self)
        super().close()

    @property
    def latest(self) -> tuple[Remarked, ...]:
        """The warnings, the latest last."""
        return tuple(self._known.values())


class LineFormatter(logging.Formatter):
    """Formats records as set by ``form``; text ``for_journald`` has a priority instead of the time and level."""

    def __init__(self, form: LogFormat = "text", *, for_journald: bool = False) -> None:
        super().__init__()
        self._form = form
        self._for_journald = for_journald

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        text, level, moment = record.getMessage(), record.levelname.lower(), datetime.fromtimestamp(record.created, UTC)
        if self._form == "json":
            at = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            return json.dumps({"time": at, "level": level, "text": text}, ensure_ascii=False)
        # Texts of tasks and schedulers must not control the terminal, or look like further log lines
        parts = [without_control_characters(line) for line in text.splitlines()]
        if self._for_journald and self._form == "text":
            priority = 4 if level == "warning" else 6  # syslog priorities
            return "\n".join(f"<{priority}>{part}" for part in parts or [""])
        text = "\n    ".join(parts)
        if self._form == "demo":
            return f"{record.relativeCreated / 1000:7.1f} s  {text}"
        return f"{moment.astimezone().isoformat(sep=' ', timespec='seconds')} {level}: {text}"


def without_control_characters(line: str) -> str:
    """Return a line that cannot control a terminal; tabs are kept."""
    if line.isprintable():  # nearly all lines
        return line
    return "".join(one if one.isprintable() or one == "\t" else "\ufffd" for one in line)


def log_to_stderr(form: LogFormat, level: int) -> logging.Handler:
    """Write records from ``level`` on to stderr; failed writes, such as on a full disk, are ignored."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(form, for_journald=writes_to_journald(2)))
    handler.addFilter(lambda record: not getattr(record, "repeated", False))
    handler.handleError = lambda _: None  # type: ignore[method-assign,assignment]
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level)
    return handler


def writes_to_journald(descriptor: int) -> bool:
    """Return whether a file descriptor leads to journald, as systemd announces it."""
    try:
        about = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM", "") == f"{about.st_dev}:{about.st_ino}"
