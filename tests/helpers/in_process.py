"""Run the command line in this process, where coverage sees it: ``tests/helpers/program.py`` is the real thing."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bftrain.cli.main import exit_code_of_command


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code and what it said."""

    code: int
    out: str
    err: str


class CommandLine:
    """Calls ``bftrain`` with these arguments, as the installed program does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capfd = capfd

    def __call__(self, *arguments: str | Path | float, stdin: str | bytes = "") -> Ended:
        self._monkeypatch.setattr(sys, "argv", ["bftrain", *map(str, arguments)])
        given = stdin.encode() if isinstance(stdin, str) else stdin
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        self._capfd.readouterr()
        try:
            code = exit_code_of_command()
        except SystemExit as ended:  # of shell completion
            code = int(ended.code or 0)
        said = self._capfd.readouterr()
        return Ended(code, said.out, said.err)
