"""Progress of long commands, as lines in a pipe."""

from __future__ import annotations

import pytest

from bftrain.cli.output import Output
from bftrain_replay.commands.progress import ShownProgress


def test_a_job_that_starts_again_is_estimated_from_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    shown = ShownProgress(Output(json=False, level=0))
    for step_s, done in ((0.0, 0.0), (1000.0, 100.0), (10.0, 0.0), (100.0, 10.0)):
        now_s += step_s
        shown.tell("", done, 100.0, lambda _: "", lambda _: "working")
    assert capsys.readouterr().err.splitlines()[-1] == "working, about 900 s left"
