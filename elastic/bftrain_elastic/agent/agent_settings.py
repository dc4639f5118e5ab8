"""What an agent is started with, and its command line."""

from __future__ import annotations

import argparse
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from bftrain_elastic.agent.prefork_server import PRELOADED
from bftrain_elastic.errors import ElasticError
from bftrain_elastic.wire.network_interfaces import towards
from bftrain_elastic.wire.shared_secret import read_secret

AUTO: Final = "auto"  # instead of an address


@dataclass(frozen=True)
class AgentSettings:
    """What an agent is started with.

    ``patience_s`` is how long it goes on without its manager, ``grace_s`` how long after SIGTERM, if there are
    workers. When the process ``parent`` ends, it removes the folder ``remove`` and leaves.
    """

    manager: tuple[str, int]
    secret: bytes
    node: str
    address: str = "127.0.0.1"
    slots: int = 0
    preload: tuple[str, ...] = PRELOADED
    patience_s: float = 30.0
    grace_s: float = 0.0
    parent: int = 0
    remove: Path | None = None

    @classmethod
    def of(cls, given: argparse.Namespace) -> Self:
        """Read what the command line says; raise what is wrong with it."""
        host, _, port = given.manager.rpartition(":")
        if not (host and port.isdecimal()):
            raise ElasticError(f"'{given.manager}' is not ADDRESS:PORT", where="--manager", fix="such as 10.0.0.1:7070")
        return cls(
            manager=(host, int(port)),
            secret=read_secret(given.secret),
            node=given.node,
            address=towards(host) if given.address == AUTO else given.address,
            slots=given.slots,
            preload=tuple(filter(None, given.preload.split(","))),
            patience_s=given.patience,
            grace_s=given.grace,
            parent=given.parent,
            remove=given.remove,
        )


def command_line(description: str) -> argparse.ArgumentParser:
    """Return what reads an agent's command line."""
    parser = argparse.ArgumentParser(prog="python -m bftrain_elastic.agent", description=description)
    add = parser.add_argument
    add("--manager", required=True, help="address:port of the manager")
    add("--secret", required=True, type=Path, help="file with the secret of this run, mode 0600")
    add("--node", default=socket.gethostname(), help="what this node is called")
    add(
        "--address",
        default="127.0.0.1",
        help="where other nodes reach this one; workers listen there only; auto: whence it reaches the manager",
    )
    add("--slots", type=int, default=0, help="workers at once; 0: one a GPU, or one")
    add("--preload", default=",".join(PRELOADED), help="modules that workers find imported; empty: none")
    add("--patience", type=float, default=30.0, help="seconds to go on without the manager")
    add("--grace", type=float, default=0.0, help="seconds for workers to save or hand over after SIGTERM or SIGUSR1/2")
    add("--parent", type=int, default=0, help="end when this process, which started the agent, ends")
    add("--remove", type=Path, help="remove this folder if --parent ended before the agent")
    return parser
