"""``bftrain task usage``, and settings of a live run from options."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bftrain import Entity
from bftrain.live.model.site_config import Api, SiteSettings, Usage
from tests.helpers.in_process import CommandLine
from tests.helpers.live_callers import ANN, BOB, submission
from tests.helpers.live_thread import live_thread


def test_usage_is_a_table_csv_and_json(bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live_thread(tmp_path, usage=Usage(gpus=4.0), api=Api(metrics_by_user=True)) as run:
        monkeypatch.setenv("BFTRAIN_LIVE", run.socket)
        for caller in (ANN, BOB):
            run.do(lambda inside, caller=caller: inside.service.submit(caller, submission(caller.user, 1)))
        run.do(lambda inside: inside.world.lend("n1", "n2"))
        for name, samples in (("ann", 30), ("bob", 10)):
            report = {"step": 1, "size": 1, "samples": samples, "loss": None}
            run.do(lambda inside, name=name, report=report: inside.world.tell(name, "report", **report))
        shown = bftrain("task", "usage", "--by", "user")
        assert (shown.code, "GPU-hours" in shown.out, "kWh" in shown.out) == (0, True, False)
        assert [line.split()[0] for line in shown.out.splitlines() if line.strip()][-1] == "all"
        metrics = run.do(lambda inside: inside.service.metrics.text())
        assert 'bftrain_usage_samples_total{user="ann"} 30' in metrics
        printed = bftrain("task", "usage", "--json")
        assert {row["of"]: row["samples"] for row in json.loads(printed.out)} == {"ann": 30.0, "bob": 10.0}
        listed = bftrain("task", "usage", "--csv", "--by", "month")
    (row,) = csv.DictReader(io.StringIO(listed.out))
    assert (row["month"], float(row["samples"])) == (time.strftime("%Y-%m"), 40.0)
    assert float(row["gpu_s"]) == pytest.approx(4 * float(row["node_s"]))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[SiteSettings]:
    """Collect the settings of live runs instead of running them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "states"))  # not where another test may run one
    found: list[SiteSettings] = []
    run: Any = mock.Mock(side_effect=lambda site, *_, **__: found.append(site))
    monkeypatch.setattr("bftrain.live.process.run", run)
    return found


def test_a_live_run_has_the_shares_of_a_file(tmp_path: Path, bftrain: CommandLine, started: list[SiteSettings]) -> None:
    shares, site = tmp_path / "shares.toml", tmp_path / "site.toml"
    shares.write_text("[entities]\nann = 3\n[prices]\na = 2\n")
    # Paths of sockets are short, and tmp_path may be long. This socket is never created.
    socket = Path(tempfile.gettempdir(), f"bft-{os.getpid()}.sock")
    site.write_text(f'[scheduler]\nname = "local"\n[api]\nsocket = "{socket}"\n')
    assert bftrain("live", "--config", site, "--shares", shares).code == 0
    assert dict(started[0].deciding.entities) == {"ann": Entity(weight=3.0)}
    assert dict(started[0].deciding.prices) == {"a": 2.0}
