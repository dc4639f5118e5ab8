"""``bftrain.assess`` comes to the figures of the command, and writes its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bftrain
from bftrain import UsageError, generate_log
from tests.helpers.in_process import CommandLine
from tests.unit.replay.cases import log_of, mix

LOG = generate_log(24, 3.0, 5)
OF_THE_CALL = {"command", "figures_sha256", "log", "handback"}


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capfd)


def test_it_equals_the_command(command: CommandLine, tmp_path: Path) -> None:
    path, out = tmp_path / "log.npz", tmp_path / "out"
    bftrain.save_log(LOG, path)
    asked = ("--max-tasks", 6, "--progress", "disk:300", "--handback-delay", 30, "--quick")
    printed = json.loads(command("assess", path, "-o", out, *asked, "--json", "-q").out)
    done = bftrain.assess(path, max_tasks=6, progress="disk:300", handback_delay_s=30.0)
    found = json.loads(json.dumps(done.summary))
    assert {key: found[key] for key in found if key not in OF_THE_CALL} == {
        key: printed[key] for key in printed if key not in OF_THE_CALL
    }
    assert found["handback"] == printed["handback"]
    again = bftrain.assess(LOG, max_tasks=6, progress="disk:300")
    assert again.figures.harvest == done.figures.harvest
    assert "node-hours a week can be harvested" in repr(done)


def test_its_files_are_those_of_the_command(tmp_path: Path) -> None:
    tasks = mix(4, 1, work_samples=None)
    done = bftrain.assess(LOG, tasks, max_tasks=3)
    done.write(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"assess.json", "assess.html"}
    assert json.loads((tmp_path / "out" / "assess.json").read_text())["harvest"] == done.summary["harvest"]
    with pytest.raises(UsageError, match="overwrite=True"):
        done.write(tmp_path / "out")
    done.write(tmp_path / "out", overwrite=True)


def test_what_ifs_that_change_nothing_are_shown(
    command: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BFTRAIN_QUICK", "0")
    path = tmp_path / "log.npz"
    bftrain.save_log(log_of((0.0, "ab", ""), end_s=3600.0), path)  # no node leaves, so none can leave earlier
    ended = command("assess", path, "-o", tmp_path / "out", "--cost-factor", 2)
    assert "is left out" not in ended.err
    assert "Leaving on notice of 30 s" in ended.out
    page = (tmp_path / "out" / "assess.html").read_text().replace("&nbsp;", " ")
    assert "costs x 4: 2.4 min a start" in page  # 18 s times 2 times 4


def test_where_idle_nodes_are_powered_down_energy_counts_from_there(command: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    bftrain.save_log(LOG, path)

    def energy(watts: str, name: str) -> float:
        ended = command("assess", path, "-o", tmp_path / name, "--node-watts", watts, "--quick", "--json", "-q")
        return float(json.loads(ended.out)["worth"]["energy_kwh"]["median"])

    off, on = energy("idle=100,busy=400,off=10", "off"), energy("idle=100,busy=400", "on")
    assert off == pytest.approx(on * 390 / 300)


def test_a_setting_that_is_none_is_named() -> None:
    with pytest.raises(UsageError, match=r"there is no setting 'max_task'.*did you mean 'max_tasks'"):
        bftrain.assess(LOG, max_task=3)  # type: ignore[call-arg]  # it is the test


SACCT = (
    "JobID|User|Submit|Start|End|NNodes|NodeList|State\n"
    "1|ann|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T12:00:00|2|n[1-2]|COMPLETED\n"
    "2|bob|2026-01-01T00:00:00|2026-01-01T12:00:00|2026-01-01T15:00:00|1|n1|COMPLETED\n"
    "3|ann|2026-01-01T14:00:00|2026-01-01T15:00:00|2026-01-01T18:00:00|2|n[1-2]|COMPLETED\n"
)


def test_waits_of_jobs_are_those_of_the_command(command: CommandLine, tmp_path: Path) -> None:
    records = tmp_path / "sacct.txt"
    records.write_text(SACCT)
    asked = ("--handback-delay", 60, "--quick", "--json", "-q")
    printed = json.loads(command("assess", records, "-o", tmp_path / "out", *asked).out)
    log = bftrain.import_logs(records).log
    done = bftrain.assess(log, handback_delay_s=60.0, records=[records])
    assert json.loads(json.dumps(done.summary))["handback"] == printed["handback"]
