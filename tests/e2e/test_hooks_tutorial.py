"""The tutorial on hooks and agents on all nodes, typed word for word beside a real Slurm, in folders of its own."""

from __future__ import annotations

import dataclasses
import os
import pwd
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pytest

from tests.helpers.pages import ROOT, Page, page
from tests.helpers.program import PROGRAM, environment
from tests.helpers.reading import Reader
from tests.helpers.slurm import Slurm, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.slurm, pytest.mark.torch]

TUTORIAL: Final = ROOT / "docs" / "tutorials" / "hooks.md"
FOLDERS: Final = ("/var/spool/bftrain", "/etc/systemd/system", "/etc/bftrain", "/var/lib/bftrain", "/run/bftrain")
SYSTEMCTL: Final = """\
#!/bin/sh
# Hands its words to the test, and waits until they are done
printf '%s' "$*" > "{asked}/.$$"
mv "{asked}/.$$" "{asked}/$$"
while [ -e "{asked}/$$" ]; do sleep 0.05; done
"""


class Machines:
    """What systemd does on the machines of the page: it starts the daemon and agents, and slurmctld again."""

    def __init__(self, cluster: Slurm, moved: Callable[[str], str]) -> None:
        self._cluster = cluster
        self._moved = moved
        self._asked = cluster.home / "asked"
        self._asked.mkdir()
        shim = cluster.home / "bin" / "systemctl"
        shim.parent.mkdir()
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
        self._cluster.stop()
        self._end.set()  # not before: what slurmctld was started by ends it
        self._thread.join()

    def _serve(self) -> None:
        while not self._end.wait(0.05):
            for file in self._asked.glob("[0-9]*"):
                match file.read_text().split():
                    case ["restart", "slurmctld"]:
                        self._cluster.stop_controller()
                        self._cluster.start_controller()
                    case ["enable", "--now", "bftrain-agent"]:
                        for node in self._cluster.nodes:
                            self._start("bftrain-agent", node)
                    case ["enable", "--now", unit]:
                        self._start(unit)
                        socket = Path(self._moved("/run/bftrain/api.sock"))
                        wait_until(socket.exists, "the daemon runs", self._cluster.logs)
                file.unlink()

    def _start(self, unit: str, node: str = "") -> None:
        text = Path(self._moved(f"/etc/systemd/system/{unit}.service")).read_text()
        (words,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
        command = [word.replace("%l", node) for word in shlex.split(self._moved(words))]
        with (self._cluster.home / f"{unit}.log").open("ab") as log:
            env = environment(SLURM_CONF=self._cluster.env["SLURM_CONF"], PATH=self._cluster.env["PATH"])
            self._processes.append(
                subprocess.Popen(command, cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )


def moved_to(home: Path) -> Callable[[str], str]:
    """Give what puts the folders and users of the page below ``home``: the test is no root, and no other user."""
    us = pwd.getpwuid(os.geteuid()).pw_name
    places = {folder: str(home / folder.strip("/").replace("/", "-")) for folder in (*FOLDERS, "/shared/bftrain")}
    places |= {"/etc/slurm": str(home), "--owner bftrain": f"--owner {us}", "--writer slurm": f"--writer {us}"}
    places |= {'["slurm"]': f'["{us}"]', "/opt/bftrain/bin/python": sys.executable}

    def moved(text: str) -> str:
        for place, instead in places.items():
            text = text.replace(place, instead)
        return text

    return moved


def test_the_tutorial_on_hooks_word_for_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = page(TUTORIAL)
    with Slurm(nodes=2) as cluster:
        moved = moved_to(cluster.home)
        for folder in (*FOLDERS[1:], "/shared/bftrain"):
            Path(moved(folder)).mkdir(mode=0o700)
        monkeypatch.setenv("PATH", f"{cluster.home / 'bin'}{os.pathsep}{cluster.env['PATH']}")
        monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
        monkeypatch.setenv("BFTRAIN_LIVE", moved("/run/bftrain/api.sock"))
        blocks = [dataclasses.replace(block, text=moved(block.text)) for block in found.blocks]
        typed = Page(found.path, found.text, found.said, blocks)
        with Machines(cluster, moved):
            try:
                Reader(typed, tmp_path, cluster.home / "state").read()
            except AssertionError as error:
                error.add_note(cluster.logs())
                raise
            status = subprocess.run([PROGRAM, "status"], capture_output=True, text=True, check=True).stdout
    assert "1 check, 1 end, 1 start" in status
    assert "2 agents" in status
