"""A Flux instance of several brokers on this machine, each of them a node, where Flux is installed.

flux-core 0.88 is built in five minutes by ``./autogen.sh && ./configure --prefix=FOLDER --disable-docs`` and
``make -C src install``; no system has to be set up for it. Then put ``FOLDER/bin`` on PATH. Debian 12 has the packages
that its ``scripts/install-deps-deb.sh`` names, ``liblua5.1-dev`` as ``liblua5.1-0-dev``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest

needs_flux = pytest.mark.skipif(shutil.which("flux") is None, reason="no flux here: build flux-core and put it on PATH")
_CONFIG = """\
[resource]
noverify = true
path = "{folder}/R"
{more}
"""


class Flux:
    """The instance; use it in a ``with`` block. Jobs run in it as on nodes of the names given."""

    def __init__(self, *nodes: str, config: str = "") -> None:
        self.nodes = nodes
        self._config = config
        self._folder = Path(tempfile.mkdtemp(prefix="bftrain-flux-", dir="/tmp"))
        self._broker: subprocess.Popen[str] | None = None
        self.env: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        names, ranks = ",".join(self.nodes), ",".join(map(str, range(len(self.nodes))))
        resources = subprocess.check_output(["flux", "R", "encode", "-r", ranks, "-H", names, "-c", "0-1"], text=True)
        (self._folder / "R").write_text(resources)
        (self._folder / "flux.toml").write_text(_CONFIG.format(folder=self._folder, more=self._config))
        words = ["flux", "start", f"--test-size={len(self.nodes)}", f"--config-path={self._folder / 'flux.toml'}"]
        words += [f"--test-hosts={names}", "sh", "-c", "flux queue start --all --quiet; echo $FLUX_URI; read end"]
        self._broker = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._broker.stdout is not None
        self.env = {**os.environ, "FLUX_URI": self._broker.stdout.readline().strip()}
        return self

    def __exit__(self, *_: object) -> None:
        self.run("cancel", "--all", "--quiet", check=False)
        assert self._broker is not None
        self._broker.communicate("end\n", timeout=60)
        shutil.rmtree(self._folder)

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command of Flux, and give what it printed."""
        return subprocess.run(
            ["flux", *words], env=self.env, check=check, capture_output=True, text=True
        ).stdout.strip()

    def submit(self, *words: str) -> str:
        """Submit a job, and return its number."""
        return self.run("job", "id", "--to=dec", self.run("submit", *words))

    def jobs(self, *states: str, form: str = "{name}") -> Sequence[str]:
        """Return what is asked for of the jobs in these states, one each."""
        return self.run("jobs", "-n", "-o", form, f"--filter={','.join(states)}").split()

    def seconds_until_running(self, job: str) -> float:
        """Wait until a job runs; give for how long it waited by Flux's clock."""
        self.run("job", "wait-event", "-t", "60", job, "start")
        submitted, started = self.run("jobs", "-n", "-o", "{t_submit} {t_run}", job).split()
        return float(started) - float(submitted)
