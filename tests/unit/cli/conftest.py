"""What the tests of commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bftrain.live.model.site_config import Api
from tests.helpers.in_process import CommandLine
from tests.helpers.live_thread import LiveThread, live_thread

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def events() -> Path:
    """Return the example of five steps."""
    return EXAMPLES / "events.jsonl"


@pytest.fixture
def journal(bftrain: CommandLine, events: Path, tmp_path: Path) -> Path:
    """Return a journal of the example's five steps."""
    path = tmp_path / "harvest.db"
    assert bftrain("decide", events, "--journal", path).code == 0
    return path


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that makes stdout a terminal of so many columns, without colours (but with bold text)."""

    def widen(columns: int) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        for name, value in (("COLUMNS", str(columns)), ("NO_COLOR", "1"), ("TERM", "xterm")):
            monkeypatch.setenv(name, value)

    return widen


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveThread]:
    """Yield a live run without nodes, which commands find by themselves, in a folder with two scripts."""
    with live_thread(tmp_path / "run", api=Api(tcp="127.0.0.1:0")) as found:
        monkeypatch.setenv("BFTRAIN_LIVE", found.socket)
        monkeypatch.chdir(tmp_path)
        for script in ("train.py", "cnn.py"):
            (tmp_path / script).write_text("")
        yield found
