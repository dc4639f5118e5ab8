"""Command usage: a table, CSV and JSON, of a live run or of its journal."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path

import pytest

from bftrain.live.model.site_config import Api, Usage
from tests.helpers.in_process import CommandLine
from tests.helpers.live_callers import ANN, BOB, submission
from tests.helpers.live_thread import live_thread


def test_the_command_prints_a_table_csv_and_json_of_a_live_run_or_a_journal(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with live_thread(tmp_path, usage=Usage(gpus=4.0), api=Api(metrics_by_user=True)) as run:
        monkeypatch.setenv("BFTRAIN_LIVE", run.socket)
        for caller in (ANN, BOB):
            run.do(lambda inside, caller=caller: inside.service.submit(caller, submission(caller.user, 1)))
        run.do(lambda inside: inside.world.lend("n1", "n2"))
        for name, samples in (("ann", 30), ("bob", 10)):
            report = {"step": 1, "size": 1, "samples": samples, "loss": None}
            run.do(lambda inside, name=name, report=report: inside.world.tell(name, "report", **report))
        shown = bftrain("usage", "--by", "user")
        assert shown.code == 0, shown.err
        assert "GPU-hours" in shown.out
        assert "kWh" not in shown.out
        assert [line.split()[0] for line in shown.out.splitlines() if line.strip()][-1] == "all"
        metrics = run.do(lambda inside: inside.service.metrics.text())
        assert 'bftrain_usage_samples_total{user="ann"} 30' in metrics
        printed = bftrain("usage", "--json")
        assert {row["of"]: row["samples"] for row in json.loads(printed.out)} == {"ann": 30.0, "bob": 10.0}
    listed = bftrain("usage", "--csv", "--by", "month", "--journal", tmp_path / "live" / "live.db")
    (row,) = csv.DictReader(io.StringIO(listed.out))
    assert (row["month"], float(row["samples"])) == (time.strftime("%Y-%m"), 40.0)
    assert float(row["gpu_s"]) == pytest.approx(4 * float(row["node_s"]))


@pytest.mark.parametrize("day", ["yesterday", "2026-13-01", "2026-1"])
def test_a_day_that_is_none_is_refused(day: str, bftrain: CommandLine) -> None:
    ended = bftrain("usage", "--since", day)
    assert ended.code == 3
    assert "write it as 2026-11-01" in ended.err
