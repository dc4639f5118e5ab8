"""The script of pages is kept between runs."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

import bftrain
from bftrain import NotAvailable, Settings
from bftrain_replay.drawing import vega
from tests.helpers.in_process import CommandLine
from tests.unit.replay.cases import log_of, task

MADE = "draw('ü');\n"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """How often the script was put together, with a cache of this test's own."""
    calls: list[str] = []

    def assembled(**_: object) -> str:
        calls.append(MADE)
        return MADE

    monkeypatch.setitem(sys.modules, "vl_convert", SimpleNamespace(__version__="1.0", javascript_bundle=assembled))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return calls


def script() -> str:
    vega.script.cache_clear()
    try:
        return vega.script()
    finally:
        vega.script.cache_clear()


def kept(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "cache" / "bftrain").iterdir()
    return found


def test_it_is_put_together_once(made: list[str], tmp_path: Path) -> None:
    assert [script(), script(), script()] == [MADE] * 3
    assert len(made) == 1
    assert kept(tmp_path).stat().st_mode & 0o777 == 0o600
    assert kept(tmp_path).parent.stat().st_mode & 0o777 == 0o700


def test_a_damaged_script_is_made_again(made: list[str], tmp_path: Path) -> None:
    script()
    kept(tmp_path).write_bytes(b"\xff\xfe")
    assert script() == MADE
    assert len(made) == 2


def test_a_cache_that_cannot_be_written_to_costs_time_only(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # not even root can make a folder in a file
    assert [script(), script()] == [MADE] * 2
    assert len(made) == 2


@pytest.mark.parametrize("named", ["", "relative/place"])
def test_without_a_home_nothing_is_kept(made: list[str], monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setenv("XDG_CACHE_HOME", named)
    monkeypatch.setattr(Path, "home", homeless)
    assert script() == MADE
    assert len(made) == 1


def test_the_cache_is_in_the_home_if_no_other_place_is_named(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    script()
    assert len(list((tmp_path / ".cache" / "bftrain").iterdir())) == len(made) == 1


def test_many_at_once_do_not_disturb_each_other(made: list[str], tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: vega.script.__wrapped__(), range(32))) == {MADE}
    before = len(made)
    assert script() == MADE
    assert len(made) == before  # what they left is whole
    assert kept(tmp_path)


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)


@pytest.mark.usefixtures("no_library")
def test_without_the_library_a_replay_has_all_but_its_page(tmp_path: Path) -> None:
    done = bftrain.replay(log_of((0.0, "a", ""), end_s=60.0), [task()], Settings())
    done.write(tmp_path)
    written = {path.name for path in tmp_path.iterdir()}
    assert "summary.json" in written
    assert "report.html" not in written
    with pytest.raises(NotAvailable, match="vl-convert-python") as raised:
        vega.script.__wrapped__()
    assert raised.value.fix == "pip install vl-convert-python"


@pytest.mark.usefixtures("no_library")
def test_without_the_library_a_replay_says_why_there_is_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    command_line = CommandLine(monkeypatch, capfd)
    bftrain.save_log(log_of((0.0, "a", ""), end_s=60.0), tmp_path / "log.npz")
    bftrain.save_tasks([task()], tmp_path / "tasks.toml")
    ended = command_line("replay", tmp_path / "log.npz", "--tasks", tmp_path / "tasks.toml", "-o", tmp_path / "out")
    assert ended.code == 0
    assert "no page: figures need vl-convert-python" in ended.err
    assert "pip install vl-convert-python" in ended.err
    assert not (tmp_path / "out" / "report.html").exists()
    drawn = command_line("report", tmp_path / "out")
    assert drawn.code == NotAvailable.exit_code
