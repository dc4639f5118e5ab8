"""A live run as a site has it: the command itself, as an ordinary user, beside a Slurm of the tests."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tests.helpers.slurm import Slurm, wait_until

_ROOT: Final = Path(__file__).parents[2]
_PATIENCE_S: Final = 120.0


@dataclass(frozen=True)
class User:
    """Who runs it, and with which Python."""

    name: str
    uid: int
    gid: int
    python: str
    env: Mapping[str, str]


def ordinary() -> User:
    """Give ourselves; if we are root, a user without any rights, with an interpreter that is readable for them."""
    if os.geteuid() != 0:
        me = pwd.getpwuid(os.geteuid())
        return User(me.pw_name, me.pw_uid, me.pw_gid, sys.executable, {})
    account = pwd.getpwnam("nobody")
    ours = Path(sys.executable).resolve()
    if _reachable(ours):
        return User(account.pw_name, account.pw_uid, account.pw_gid, sys.executable, {})
    # Root's own Python is not readable for others; the system's of the same version does, with the same packages
    other = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    if not other.exists():
        raise FileNotFoundError(f"{ours} is for root alone, and there is no {other}: run the tests as an ordinary user")
    packages = [path for path in sys.path if "site-packages" in path]
    rooms = [str(_ROOT), *(str(_ROOT / room) for room in ("solvers", "replay", "datasets", "elastic"))]
    env = {"PYTHONPATH": os.pathsep.join([*rooms, *packages]), "PYTHONDONTWRITEBYTECODE": "1"}
    return User(account.pw_name, account.pw_uid, account.pw_gid, str(other), env)


def _reachable(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in path.parents)


class LiveRun:
    """``bftrain live --config`` in a process of its own, which can be killed and started again."""

    def __init__(self, cluster: Slurm, settings: str) -> None:
        self.cluster = cluster
        self.user = ordinary()
        # Not pytest's own directories, which are for root alone if root runs the tests
        self.folder = folder = Path(tempfile.mkdtemp(prefix="bftrain-live-", dir="/tmp"))
        self.config = folder / "site.toml"
        self.state = folder / "state"
        self.env = {**cluster.env, **self.user.env, "HOME": str(folder), "BFTRAIN_LIVE": str(self.state / "api.sock")}
        for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
            self.env.pop(name, None)
        os.chown(folder, self.user.uid, self.user.gid)
        self.config.write_text(settings.format(folder=folder, python=self.user.python))
        self.output = folder / "live.log"
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [self.user.python, "-m", "bftrain", "live", "--config", str(self.config), "-v"],
                env=self.env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                user=self.user.uid,
                group=self.user.gid,
                extra_groups=[] if os.geteuid() == 0 else None,
                start_new_session=True,
            )
        self.until(lambda: self.call("status", check=False).returncode == 0, "it answers")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """End it in order, and give its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_PATIENCE_S)

    def call(
        self, *words: str, check: bool = True, patience_s: float = _PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.user.python, "-m", "bftrain", *words],
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            user=self.user.uid,
            group=self.user.gid,
            extra_groups=[] if os.geteuid() == 0 else None,
            timeout=patience_s,
            check=False,
        )
        if check:
            assert done.returncode == 0, f"{words}: {done.stderr}\n{self.tell()}"
        return done

    def asked(self, *words: str) -> Any:  # noqa: ANN401 - JSON is what it is
        return json.loads(self.call(*words, "--json").stdout)

    def tasks(self) -> dict[str, dict[str, Any]]:
        return {task["name"]: task for task in self.asked("status", "--tasks", "--all")}

    def until(self, holds: Callable[[], bool], what: str, patience_s: float = _PATIENCE_S) -> None:
        """Wait until ``holds()``, while it runs."""
        deadline = time.monotonic() + patience_s
        while not holds():
            assert self.process is not None
            assert self.process.poll() is None, f"it ended, before {what}:\n{self.tell()}"
            assert time.monotonic() < deadline, f"after {patience_s:g} s it is not so that {what}:\n{self.tell()}"
            time.sleep(0.2)

    def tell(self) -> str:
        jobs = self.cluster.run("squeue", "-r", check=False).stdout
        return f"{self.output.read_text(errors='replace')[-4000:]}\n{jobs}"

    def gone(self) -> None:
        """Wait until nothing of ours is left in Slurm, nor on any of its nodes."""
        mine = ("squeue", "-h", "-u", str(self.user.uid))
        wait_until(lambda: not self.cluster.run(*mine).stdout.strip(), "no job of ours is left", self.tell)
        wait_until(lambda: not self.processes(), "no process of ours is left", lambda: f"{self.processes()}")

    def processes(self) -> dict[int, str]:
        """Return the processes of ours, here and in pilots, by their command lines."""
        found = {}
        for pid in self.cluster.processes():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if ("bftrain_elastic" in words or "-m bftrain " in words) and state != "Z":
                found[pid] = words
        return found
