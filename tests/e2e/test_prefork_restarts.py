"""A prefork server that cannot start, as on a node with a broken library: its agent retries ever more slowly."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.helpers.one_node import OneNode, until

BROKEN = """
import os
with open(__file__ + ".starts", "a") as file:
    file.write("started\\n")
os._exit(2)
"""


def test_an_agent_waits_longer_each_time_before_it_starts_another(
    one_node: OneNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    one_node.start(preload=("broken",))
    one_node.hub.call(lambda: one_node.hub.expect_scripts("t"))
    starts = tmp_path / "broken.py.starts"
    until(lambda: starts.exists() and len(starts.read_text().split()) >= 3, "a third prefork server")
    began = time.monotonic()
    time.sleep(3.0)
    passed_s = time.monotonic() - began
    # 0.2, 0.4, 0.8, 1.6, ... s apart, looked at once a second: fewer than one a second
    assert len(starts.read_text().split()) - 3 <= passed_s
    assert "its prefork server ended before it was ready; another one is started soon" in capfd.readouterr().err
    one_node.spawn("", warm=False, argv=["true"])
    assert one_node.watched.until("exited")[2].code == 0, "commands do not need it"
