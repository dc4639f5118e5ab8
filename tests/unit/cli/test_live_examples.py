"""Examples of settings load as they stand, tell every key there is, and say truly what holds without it."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bftrain import registry
from tests.helpers.in_process import CommandLine
from tests.helpers.live_inside import SiteSettings, Times, load

FOLDER = Path(__file__).parents[3] / "examples" / "live"
SITES = sorted(path.stem for path in FOLDER.glob("*.toml"))
UNITS = sorted(path.stem for path in FOLDER.glob("*.service"))
# What stands there to show how it is written, and is another on every machine
SHOWN = {"python", "state"}
_KEY = re.compile(r"(?P<off>#?)(?P<key>\w+) = (?P<value>.*?)(?P<why>  # .+| # .+)?")

every_site = pytest.mark.parametrize("name", SITES)


def text_of(name: str) -> str:
    return (FOLDER / (f"{name}.toml" if name in SITES else f"{name}.service")).read_text(encoding="utf-8")


def site(folder: Path, text: str) -> SiteSettings:
    file = folder / "site.toml"
    file.write_text(text, encoding="utf-8")
    return load(file)


@every_site
def test_it_loads_and_makes_its_scheduler(name: str, tmp_path: Path) -> None:
    settings = site(tmp_path, text_of(name))
    (pool,) = settings.pools
    scheduler = registry.load("scheduler", pool.name)(pool.table, settings.for_scheduler(pool))
    assert scheduler.name == name
    assert settings.folder == str(tmp_path / "shared")


@every_site
def test_what_stands_behind_a_mark_is_what_holds_without_it(name: str, tmp_path: Path) -> None:
    text = text_of(name)
    shown = "".join(f"#?{key} =|" for key in SHOWN).rstrip("|")
    whole = "\n".join(
        line.removeprefix("#") if _KEY.fullmatch(line) and not re.match(shown, line) else line
        for line in text.splitlines()
    )
    assert whole != text
    plain, commented = site(tmp_path, text), site(tmp_path, whole)
    alike = [field.name for field in msgspec.structs.fields(SiteSettings) if field.name != "scheduler"]
    assert [getattr(plain, field) for field in alike] == [getattr(commented, field) for field in alike]
    (pool,) = commented.pools
    assert registry.load("scheduler", pool.name)(pool.table, commented.for_scheduler(pool)).name == name


@pytest.mark.parametrize("name", [*SITES, *UNITS])
def test_the_files_of_the_checkout_are_what_the_command_writes(
    name: str, bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "jane")
    monkeypatch.setattr(socket, "gethostname", lambda: "login1")
    written = bftrain("live", "--example", name).out
    assert re.sub(r"/\S+/python[\d.]*", "PYTHON", written) == re.sub(r"/\S+/python[\d.]*", "PYTHON", text_of(name))


def test_the_command_fills_in_who_asks_and_where(bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "joe")
    monkeypatch.setattr(socket, "gethostname", lambda: "head2.site.example")
    output = bftrain("live", "--example", "slurm")
    assert output.code == 0
    assert 'name = "joe" ' in output.out
    assert "pilots are called bftrain-joe" in output.out
    assert 'reach = "head2" ' in output.out
    assert "jane" not in output.out.replace(sys.executable, "")
    unit = bftrain("live", "--example", "systemd-user").out
    assert f"ExecStart={sys.executable} -m bftrain live --config %h/bftrain/site.toml" in unit
    assert bftrain("live", "--example", "slurm", "--json").out.startswith('{"example":')


def test_an_example_that_is_not_there_is_refused_with_the_nearest(bftrain: CommandLine) -> None:
    ended = bftrain("live", "--example", "slrum")
    assert ended.code == 3
    assert "did you mean 'slurm'?" in ended.err


every_unit = pytest.mark.parametrize("name", UNITS)
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")


def unit(name: str) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for line in text_of(name).splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            said.setdefault(key, []).append(value)
    return said


@needs_systemd
@every_unit
def test_systemd_finds_nothing_wrong_with_a_unit(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"bftrain-{name}.service"
    text = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable}", text_of(name))
    file.write_text(text.replace("User=bftrain", f"User={getpass.getuser()}"), encoding="utf-8")
    tmp_path.chmod(0o700)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(["--user"] if name == "systemd-user" else []), str(file)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
def test_the_unit_of_the_machine_leaves_little_open(tmp_path: Path) -> None:
    file = tmp_path / "bftrain-live.service"
    file.write_text(text_of("systemd"), encoding="utf-8")
    said = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(file)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert level, said
    assert float(level[1]) < 2.5


@pytest.mark.parametrize("name", ["systemd", "systemd-user"])
def test_a_unit_has_time_to_end_in_order_and_begins_again_in_every_case(name: str) -> None:
    said = unit(name)
    assert said["Type"] == ["notify"]
    assert said["Restart"] == ["always"]
    assert said["KillMode"] == ["mixed"], "SIGTERM is for the daemon: agents of slots and commands are its own affair"
    assert int(said["TimeoutStopSec"][0]) > Times().drain_s + 30 + 2, "tasks, then pilots, then goodbye"
    assert int(said["TimeoutStartSec"][0]) > Times().reunion_s + 20 + 20
