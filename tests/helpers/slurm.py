"""A real Slurm of several nodes on this machine, for tests: own directory, own ports, own keys, no systemd.

All daemons are children of this process and die with it. Nothing outside the temporary directory is written.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

_DAEMONS: Final = ("slurmctld", "slurmd", "munged", "setpriv")
_COMMANDS: Final = ("sbatch", "sinfo", "scancel", "squeue", "scontrol")
_PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_INSTALL: Final = "apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
# Below the ports that the system gives to outgoing connections, above those of services
_PORTS: Final = range(20_000, 32_000)
_PATIENCE_S: Final = 120.0

EAGER: Final = "bf_interval=1,sched_interval=2,batch_sched_delay=0"  # so that tests need not wait
SETTINGS: Final = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={home}/munge.sock
CredType=cred/munge
SlurmctldPort={port}
StateSaveLocation={home}/state
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/%n.pid
SlurmdSpoolDir={home}/spool/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
{select}
SchedulerType=sched/backfill
SchedulerParameters={scheduling}
ReturnToService=2
KillWait=5
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=100 PreemptMode=OFF
PartitionName=pilot Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL GraceTime=0
"""

BY_NODE: Final = "SelectType=select/linear"
BY_GPU: Final = "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nGresTypes=gpu"


def lacking() -> str:
    """Return why no Slurm can be started here and which command would help; nothing if one can."""
    missing = [name for name in (*_DAEMONS, *_COMMANDS) if not shutil.which(name, path=_PATH)]
    if missing:
        return f"Slurm's {', '.join(missing)} not found; as root: {_INSTALL}"
    try:
        _user()
    except KeyError:
        user = os.geteuid()
        return f"user {user} has no name here, and Slurm asks for one; as root: useradd --uid {user} tester"
    return ""


class Slurm:
    """A running Slurm; use it in a ``with`` block. ``env`` makes Slurm's commands talk to it.

    With ``gpus`` each node has so many GPUs, which are no devices, and jobs share nodes.
    """

    def __init__(self, nodes: int = 4, more_settings: str = "", *, scheduling: str = EAGER, gpus: int = 0) -> None:
        self._scheduling = scheduling
        self._gpus = gpus
        self._more_settings = more_settings  # for slurm.conf; {home} is our directory
        self.nodes = tuple(f"nid{number:04d}" for number in range(1, nodes + 1))
        # Not pytest's own directories: the name of a socket may have 107 characters and no more
        self.home = Path(tempfile.mkdtemp(prefix="bftrain-slurm-", dir="/tmp"))
        self.env = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(self.home / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._write_files()
            socket_file = self.home / "munge.sock"
            self._start("munged", "munged", "-F", "-S", str(socket_file), *self._munge_files())
            wait_until(socket_file.exists, "munged has its socket", self.logs)
            self.start_controller()
            for node in self.nodes:
                (self.home / "spool" / node).mkdir(parents=True)
                self._start(node, "slurmd", "-D", "-N", node)
            wait_until(lambda: self.idle() == set(self.nodes), "all nodes are idle", self.logs)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all jobs and daemons, in any state, and remove the directory."""
        if "slurmctld" in self._daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):  # of who does not answer any more
                self.run("scancel", "--user", _user(), check=False, timeout_s=10)
                _poll(lambda: not self.run("squeue", "-h", check=False, timeout_s=10).stdout.strip(), 10)
        for name in [*self.nodes, "slurmctld", "munged"]:
            self._end(name)
        _poll(self._kill_all, 10)
        shutil.rmtree(self.home, ignore_errors=True)

    def _kill_all(self) -> bool:
        """Kill what is left; return whether nothing was. One that starts another meanwhile is caught the next time."""
        left = self.processes()
        for process in left:
            _kill(process)
        return not left

    def start_controller(self) -> None:
        """Start slurmctld, which goes on from its saved state if it ran before."""
        self._start("slurmctld", "slurmctld", "-D")
        wait_until(self.answers, "slurmctld answers", self.logs)

    def stop_controller(self) -> None:
        """End slurmctld alone, as when the management node goes down."""
        self._end("slurmctld")

    def processes(self) -> list[int]:
        """Every process that has to do with this Slurm: daemons, job steps, jobs."""
        mark = f"SLURM_CONF={self.env['SLURM_CONF']}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue  # it ended, or it is not ours to read
            if mark in environment and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        return found

    def run(self, *command: str, check: bool = True, timeout_s: float = 30) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands against it."""
        return subprocess.run(command, env=self.env, check=check, timeout=timeout_s, capture_output=True, text=True)

    def answers(self) -> bool:
        return self.run("scontrol", "ping", check=False).returncode == 0

    def idle(self) -> set[str]:
        return set(self.run("sinfo", "-h", "-N", "-p", "main", "-t", "idle", "-o", "%N", check=False).stdout.split())

    def submit(self, script: str, *options: str) -> str:
        """Submit a batch job; return its number."""
        file = self.home / "job.sh"
        file.write_text(f"#!/bin/sh\n{script}\n")
        return self.run("sbatch", "--parsable", "--output=/dev/null", *options, str(file)).stdout.strip()

    def logs(self) -> str:
        files = sorted(self.home.glob("*.log"))
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-2000:]}" for file in files)

    def _write_files(self) -> None:
        self.home.chmod(0o711)  # munged insists that everyone can reach its socket
        (self.home / "state").mkdir()
        key = self.home / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        host = socket.gethostname().partition(".")[0]
        ports = _free_ports(len(self.nodes) + 1)
        gres = f" Gres=gpu:{self._gpus}" if self._gpus else ""
        lines = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=1000{gres}"
            for name, port in zip(self.nodes, ports, strict=False)
        ]
        text = SETTINGS.format(
            host=host,
            user=_user(),
            home=self.home,
            port=ports[-1],
            nodes="\n".join(lines),
            scheduling=self._scheduling,
            select=BY_GPU if gres else BY_NODE,
        )
        for number in range(self._gpus):  # Slurm insists on devices
            (self.home / f"gpu{number}").symlink_to("/dev/null")
        if gres:
            where = f"NodeName={','.join(self.nodes)} Name=gpu File={self.home}/gpu[0-{self._gpus - 1}]"
            (self.home / "gres.conf").write_text(f"{where}\n")
        (self.home / "slurm.conf").write_text(text + self._more_settings.format(home=self.home))

    def _munge_files(self) -> list[str]:
        names = {"key-file": "munge.key", "pid-file": "munge.pid", "seed-file": "munge.seed", "log-file": "munge.log"}
        return [f"--{option}={self.home / name}" for option, name in names.items()]

    def _start(self, name: str, *command: str) -> None:
        # setpriv: the daemon dies with the test process, even one that is killed
        with (self.home / f"{name}.log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command],
                env=self.env,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end(self, name: str) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.terminate()
        try:
            daemon.wait(timeout=15)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def wait_until(holds: Callable[[], bool], what: str, tell: Callable[[], str] = str) -> None:
    """Wait until ``holds()``, and fail with ``what`` was waited for and what ``tell()`` says about it."""
    if not _poll(holds, _PATIENCE_S):
        raise TimeoutError(f"after {_PATIENCE_S:g} s it is still not so that {what}\n{tell()}")


def _poll(holds: Callable[[], bool], patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _user() -> str:
    """Return the name of the user who runs this, root or not; all daemons and jobs run as that user."""
    return pwd.getpwuid(os.geteuid()).pw_name


def _free_ports(count: int) -> list[int]:
    """Find free ports; chance keeps two who look at once apart."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free ports")


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
