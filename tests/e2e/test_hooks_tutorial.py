"""The tutorials on hooks and agents on all nodes, typed word for word beside a real Slurm and a stand-in for PBS."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import pytest

from tests.helpers.fake_pbs import FakePbs
from tests.helpers.pages import ROOT, page
from tests.helpers.program import PROGRAM, environment
from tests.helpers.reading import Reader, section
from tests.helpers.slurm import Slurm, wait_until

GUIDE: Final = ROOT / "docs" / "how-to" / "hooks.md"
MADE: Final = ("/var/spool/bftrain", "/etc/bftrain")  # by the page
FOLDERS: Final = ("/etc/systemd/system", "/var/lib/bftrain", "/run/bftrain", "/shared/bftrain")
SYSTEMCTL: Final = """\
#!/bin/sh
# Hands its words to the test, and waits until they are done, or fails after two minutes
printf '%s' "$*" > "{asked}/.$$"
mv "{asked}/.$$" "{asked}/$$"
for _ in $(seq 2400); do
    [ -e "{asked}/$$" ] || exit 0
    sleep 0.05
done
exit 1
"""


class Machines:
    """What systemd does on the machines of the page: it starts the daemon and agents, and the scheduler again."""

    def __init__(
        self,
        home: Path,
        nodes: Sequence[str],
        env: Mapping[str, str],
        moved: Callable[[str], str],
        *,
        restart: Callable[[], None],
        logs: Callable[[], str],
    ) -> None:
        self._home, self._nodes, self._env, self._moved = home, nodes, env, moved
        self._restart, self._logs = restart, logs
        self._asked = home / "asked"
        self._asked.mkdir()
        shim = home / "bin" / "systemctl"
        shim.parent.mkdir(exist_ok=True)
        shim.write_text(SYSTEMCTL.format(asked=self._asked))
        shim.chmod(0o755)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(60)

    def end(self) -> None:
        """End the thread; not before the scheduler: what slurmctld was started by ends it."""
        self._end.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._end.wait(0.05):
            for file in self._asked.glob("[0-9]*"):
                match file.read_text().split():
                    case ["restart", "slurmctld"]:
                        self._restart()
                    case ["enable", "--now", "bftrain-agent"]:
                        for node in self._nodes:
                            self._start("bftrain-agent", node)
                    case ["enable", "--now", unit]:
                        self._start(unit)
                        socket = Path(self._moved("/run/bftrain/api.sock"))
                        wait_until(socket.exists, "the daemon runs", self._logs)
                file.unlink()

    def _start(self, unit: str, node: str = "") -> None:
        text = Path(self._moved(f"/etc/systemd/system/{unit}.service")).read_text()
        (words,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
        command = [word.replace("%l", node) for word in shlex.split(self._moved(words))]
        with (self._home / f"{unit}.log").open("ab") as log:
            env = environment(**self._env)
            self._processes.append(
                subprocess.Popen(command, cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )


def moved_to(home: Path) -> Callable[[str], str]:
    """Return what puts the folders and users of the page below ``home``: the test is no root, and no other user."""
    us = pwd.getpwuid(os.geteuid()).pw_name
    places = {folder: str(home / folder.strip("/").replace("/", "-")) for folder in (*MADE, *FOLDERS)}
    places |= {"/etc/slurm": str(home), "-o bftrain -g slurm -m 730": f"-o {us} -m 700", "-o bftrain": f"-o {us}"}
    places |= {'["slurm"]': f'["{us}"]', "/opt/bftrain/bin/python": sys.executable}

    def moved(text: str) -> str:
        for place, instead in places.items():
            text = text.replace(place, instead)
        return text

    return moved


def status() -> str:
    return subprocess.run([PROGRAM, "status"], capture_output=True, text=True, check=True).stdout


@pytest.mark.slurm
@pytest.mark.torch
def test_the_tutorial_on_hooks_word_for_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Slurm(nodes=2) as cluster:
        moved = moved_to(cluster.home)
        for folder in FOLDERS:
            Path(moved(folder)).mkdir(mode=0o700)
        monkeypatch.setenv("PATH", f"{cluster.home / 'bin'}{os.pathsep}{cluster.env['PATH']}")
        monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
        monkeypatch.setenv("BFTRAIN_LIVE", moved("/run/bftrain/api.sock"))

        def restart() -> None:
            cluster.stop_controller()
            cluster.start_controller()

        env = {name: cluster.env[name] for name in ("SLURM_CONF", "PATH")}
        machines = Machines(cluster.home, cluster.nodes, env, moved, restart=restart, logs=cluster.logs)
        try:
            with machines:
                try:
                    Reader(section(page(GUIDE), "Hooks on Slurm", moved), tmp_path, cluster.home / "state").read()
                except AssertionError as error:
                    error.add_note(cluster.logs())
                    raise
                shown = status()
        finally:
            cluster.stop()
            machines.end()
    assert "1 end, 1 start" in shown
    assert "2 agents" in shown


@pytest.mark.torch
def test_the_tutorial_on_hooks_of_pbs_word_for_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakePbs("n1", "n2") as server:
        home = server.home
        moved = moved_to(home)
        for folder in FOLDERS:
            Path(moved(folder)).mkdir(mode=0o700)
        path = f"{server.path}{os.pathsep}{os.environ['PATH']}"
        (home / "state").mkdir()
        monkeypatch.setenv("PATH", path)
        monkeypatch.setenv("BFTRAIN_LIVE", moved("/run/bftrain/api.sock"))

        def logs() -> str:
            return "\n".join([*server.hook_logs, *(log.read_text() for log in home.glob("*.log"))])

        machines = Machines(home, server.nodes, {"PATH": path}, moved, restart=lambda: None, logs=logs)
        try:
            with machines:
                try:
                    Reader(section(page(GUIDE), "Hooks on PBS", moved), tmp_path, home / "state").read()
                except AssertionError as error:
                    error.add_note(logs())
                    raise
                shown = status()
        finally:
            machines.end()
        assert server.hook_logs == []
    assert "1 end, 1 ending, 1 start" in shown
    assert "2 agents" in shown
