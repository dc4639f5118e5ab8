"""Settings of an agent, and its command line."""

from __future__ import annotations

import argparse
import math
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bftrain_elastic.agent.prefork_server import PRELOADED
from bftrain_elastic.errors import ElasticError
from bftrain_elastic.wire.authenticated_stream import read_secret
from bftrain_elastic.wire.network_interfaces import networking, towards
from bftrain_elastic.worker.checkpoint_file import available_memory

AUTO: Final = "auto"  # instead of an address
COPIES_MEMORY: Final = "10%"  # share of the free memory when the agent starts


class AgentSettings(argparse.Namespace):
    """Settings of an agent.

    ``kind`` is the node's kind; "": its manager knows. ``patience_s``: seconds that it continues after it lost its
    manager; infinite: it stays until it is stopped. ``grace_s``: seconds that it continues after SIGTERM, if there are
    workers. When the process ``parent`` exits, the agent exits and removes the folder ``remove``. A worker's log is
    limited to ``log_limit`` bytes, and copies of other nodes' states to ``copies_bytes``; 0: none. ``nice`` is the nice
    value of its child processes, not of the agent itself. ``networking`` are environment variables for workers.
    """

    manager: tuple[str, int]
    secret: bytes
    node: str
    kind: str
    address: str
    slots: int
    first_gpu: int
    preload: tuple[str, ...]
    patience_s: float
    grace_s: float
    parent: int
    remove: Path | None
    log_limit: int
    copies_bytes: int
    nice: int
    gpus: AgentGpus
    networking: dict[str, str]

    @classmethod
    def read(cls, parser: argparse.ArgumentParser, arguments: list[str] | None) -> AgentSettings:
        """Read the settings from command-line arguments; raise an error that names the invalid one."""
        settings = parser.parse_args(arguments, namespace=cls())
        settings.address = towards(settings.manager[0]) if settings.address == AUTO else settings.address
        settings.networking = networking(settings.address)
        settings.gpus = AgentGpus(tuple(visible_gpus()), settings.first_gpu)
        settings.slots = settings.slots or len(settings.gpus.names) or 1
        return settings

    @property
    def stays(self) -> bool:
        """Whether the agent waits for the next manager until it is stopped."""
        return math.isinf(self.patience_s)


def command_line(description: str) -> argparse.ArgumentParser:
    """Return the parser of an agent's command line."""
    parser = argparse.ArgumentParser(prog="python -m bftrain_elastic.agent", description=description)
    add = parser.add_argument
    add("--manager", required=True, type=_endpoint, help="address:port of the manager")
    add("--secret", required=True, type=_secret, help="file with the secret of this run, mode 0600")
    add("--node", default=socket.gethostname(), help="name of this node")
    add(
        "--address",
        default="127.0.0.1",
        help="address of this node for other nodes; workers listen there only; auto: the one that reaches the manager",
    )
    add("--slots", type=int, default=0, help="parallel workers; 0: one per GPU, or one")
    preloaded = "modules to import before scripts start; empty: none"
    first_gpu = "index of the first worker's GPU on this machine, if several agents share it"
    add("--first-gpu", metavar="N", type=int, default=0, help=first_gpu)
    add("--preload", type=_modules, default=",".join(PRELOADED), help=preloaded)
    add("--kind", default="", help="kind of this node, unless the manager's settings give one")
    patience = "seconds to continue without the manager; inf: until stopped"
    add("--patience", dest="patience_s", metavar="PATIENCE", type=float, default=30.0, help=patience)
    grace = "seconds for workers to save or hand over after SIGTERM, SIGHUP, or SIGUSR1/2"
    add("--grace", dest="grace_s", metavar="GRACE", type=float, default=0.0, help=grace)
    add("--parent", type=int, default=0, help="exit when this process, which started the agent, exits")
    add("--remove", type=Path, help="remove this folder if --parent exits before the agent")
    log = "megabytes of each worker's output to keep, from its start and its end"
    add("--log-limit", metavar="MB", type=_megabytes, default="64", help=log)
    copies = "memory for copies of task states from other nodes: a share of free memory, or MB; 0: none"
    add("--copies", dest="copies_bytes", metavar="SHARE%|MB", type=_memory, default=COPIES_MEMORY, help=copies)
    nice = "nice value of the agent's child processes, 0 to 19"
    add("--nice", metavar="N", type=int, choices=range(20), default=0, help=nice)
    return parser


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (host and port.isdecimal()):
        raise ElasticError(f"'{text}' is not ADDRESS:PORT", where="--manager", fix="such as 10.0.0.1:7070")
    return host, int(port)


def _secret(path: str) -> bytes:
    return read_secret(Path(path))


def _megabytes(text: str) -> int:
    if not 1.0 <= (megabytes := float(text)) < math.inf:
        raise ElasticError("must be at least 1, and finite", where="--log-limit")
    return int(1e6 * megabytes)


def _memory(text: str) -> int:
    if not 0.0 <= (amount := float(text.removesuffix("%"))) < math.inf:
        raise ElasticError("must be at least 0, and finite", where="--copies")
    return int(amount / 100.0 * available_memory()) if text.endswith("%") else int(1e6 * amount)


def _modules(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


@dataclass(frozen=True, slots=True)
class AgentGpus:
    """``names`` are the machine's GPUs as in CUDA_VISIBLE_DEVICES, ``first`` is the index of the first slot's GPU.

    Agents that share a machine have different first indices. If there are more slots than GPUs, slots share a GPU.
    """

    names: tuple[str, ...]
    first: int = 0

    def environment(self, slot: int, *, all_gpus: bool) -> dict[str, str]:
        """Return GPU variables for a worker: its own GPU, or all GPUs, from the agent's first one on."""
        if not self.names:
            return {}
        turn, own = divmod(self.first + slot, len(self.names))
        variables = {}
        if not all_gpus:
            variables["CUDA_VISIBLE_DEVICES"] = self.names[own]
        elif first := self.first % len(self.names):
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(self.names[first:] + self.names[:first])
        if turn:  # NCCL rejects two workers of a host on one GPU, unless they seem to be on different hosts
            variables["NCCL_HOSTID"] = f"{socket.gethostname()}-{turn}"
        return variables


# GPUs are counted from device files: a process that has used CUDA can no longer be forked
def visible_gpus(devices: Path = Path("/dev")) -> list[str]:
    """Return the CUDA_VISIBLE_DEVICES names of this machine's usable GPUs; empty if it has no GPU."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return [name.strip() for name in allowed.split(",") if name.strip() and name.strip() != "-1"]
    present = [path.name for path in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    return [str(number) for number in range(len(present))]
