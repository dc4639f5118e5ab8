"""Users join a site on a real Slurm: their tasks run under their own accounts, and no failure touches others."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final, Self

import pytest

from bftrain import Client
from tests.helpers.live_run import LiveRun, User, ordinary
from tests.helpers.slurm import Slurm, wait_until

ANN, BOB = "games", "daemon"  # accounts that every Debian has


def lacking() -> str:
    """Return why no other users are available here; nothing if there are."""
    if os.getuid() != 0:
        return "only root can be several users"
    try:
        ordinary()
        _ = [pwd.getpwnam(name) for name in (ANN, BOB)]
    except (FileNotFoundError, KeyError) as error:
        return str(error)
    return ""


pytestmark = [pytest.mark.slurm, pytest.mark.skipif(bool(lacking()), reason=lacking())]

SITE: Final = """\
name = "hall"
folder = "{folder}/shared"
state = "{folder}/state"
launcher = "process"
members = true

[scheduler]
name = "slurm"
partition = "pilot"
pending = 2
poll_s = 1

[agents]
python = "{python}"
preload = []

[api]
mode = "666"
"""


class Member:
    """A user of the machine with a home, and a live run that joins a site."""

    def __init__(self, cluster: Slurm, user: User, name: str) -> None:
        self.account = pwd.getpwnam(name)
        self._python = user.python
        self.home = Path(tempfile.mkdtemp(prefix=f"bftrain-{name}-", dir="/tmp"))
        os.chown(self.home, self.account.pw_uid, self.account.pw_gid)
        self.env = {**cluster.env, **user.env, "HOME": str(self.home)}
        for known in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "BFTRAIN_LIVE"):
            self.env.pop(known, None)
        self.output = self.home / "live.log"
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    def join(self, socket: str) -> None:
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [self._python, "-m", "bftrain", "live", "join", socket], stdout=output, stderr=output, **self._as()
            )
        wait_until(lambda: "running; listening" in self.output.read_text(), "it runs", self.output.read_text)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        words = (self._python, "-m", "bftrain", *words)
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, **self._as())

    def _as(self) -> dict[str, object]:
        given = {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}
        return {**given, "env": self.env, "cwd": self.home, "stdin": subprocess.DEVNULL}


def test_two_users_share_a_site_under_their_own_accounts_and_survive_each_other(slurm_cluster: Slurm) -> None:
    cluster, nodes = slurm_cluster, len(slurm_cluster.nodes)

    def pilots() -> dict[str, int]:
        users = cluster.run("squeue", "-h", "-t", "RUNNING", "-p", "pilot", "-o", "%u").stdout.split()
        return {user: users.count(user) for user in users}

    site = LiveRun(cluster, SITE)
    site.folder.chmod(0o755)  # so that users reach its socket
    with site, Member(cluster, site.user, ANN) as ann, Member(cluster, site.user, BOB) as bob:
        socket = str(site.state / "api.sock")
        ann.join(socket)
        words = ("submit", "sh", "--nodes", f"1:{nodes}", "--", "-c", "id -un > who; exec sleep 600")
        assert ann.call(*words).returncode == 0
        wait_until(lambda: pilots() == {ANN: nodes}, "ann has all nodes", ann.output.read_text)
        bob.join(socket)
        assert bob.call(*words).returncode == 0
        half = nodes // 2
        wait_until(lambda: pilots() == {ANN: half, BOB: half}, "each has half", lambda: f"{pilots()}")
        for one in (ann, bob):
            who = one.home / "who"
            wait_until(lambda: who.exists() and bool(who.read_text()), "the task runs")  # noqa: B023 - called here
            assert (who.read_text().strip(), who.stat().st_uid) == (one.account.pw_name, one.account.pw_uid)
        with closing(Client(socket)) as client:
            assert [one.user for one in client.members()] == [BOB, ANN, site.user.name]
        site.kill()
        ann.kill()
        with closing(Client(str(bob.home / ".local/state/bftrain/live/api.sock"))) as client:
            wait_until(lambda: client.status().share is None, "bob knows that the site is gone")
            wait_until(lambda: client.status().used == half, "its task goes on, on all nodes of its pilots")
            assert (client.status().pool, client.status().running) == (half, 1)
        assert pilots()[BOB] == half
        cluster.run("scancel", "--partition=pilot")
