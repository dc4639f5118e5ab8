"""torchrun on one address: ``torchrun.py SIZE RANK WORKERS ADDRESS:PORT SCRIPT ...``.

Torch's own rendezvous listens on all interfaces. Here rank 0 listens on the given address only, and so does the
training's store. The file has its own folder, because Python lets a script import all files next to it.
"""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from bftrain_elastic.starters import script

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters

_NAME: Final = "bftrain"
_TIMEOUT: Final = timedelta(minutes=5)  # time for all nodes to meet


def main(words: list[str]) -> None:
    """Run a script under torchrun."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry
    from torch.distributed.run import parse_args, run

    size, rank, workers, endpoint, *command = words
    rendezvous_handler_registry.register(_NAME, _rendezvous)
    options = [
        f"--rdzv-backend={_NAME}",
        f"--rdzv-id={_NAME}",
        f"--rdzv-endpoint={endpoint}",
        f"--rdzv-conf=rank={rank}",
    ]
    for name in ("multiprocessing.api", "agent.server.api"):  # failures and stops of the script are reported elsewhere
        logging.getLogger(f"torch.distributed.elastic.{name}").setLevel(logging.CRITICAL)
    options += [f"--nnodes={size}", f"--nproc-per-node={workers}", "--no-python"]
    try:
        run(parse_args([*options, sys.executable, "-m", script.__name__, *command]))
    except ChildFailedError as error:  # the script's own last output is above; a page about it would hide it
        raise SystemExit(error.get_first_failure()[1].exitcode or 1) from None
    except SignalException as error:
        raise SystemExit(128 + error.sigval) from None


def _rendezvous(parameters: RendezvousParameters) -> RendezvousHandler:
    from torch.distributed import PrefixStore, TCPStore
    from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo
    from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

    from bftrain_elastic.worker.process_groups import GroupStore

    class TorchrunRendezvous(StaticTCPRendezvous):  # type: ignore[misc]  # torch is Any to the type checker
        """torch's static rendezvous, with rank 0 listening on one address only."""

        _store: Any = None

        def get_backend(self) -> str:
            return _NAME

        def next_rendezvous(self) -> RendezvousInfo:
            host, port = self.master_addr, self.master_port
            if self._store is None and self.rank == 0:
                self._store = GroupStore(host, port).store
            elif self._store is None:
                self._store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_TIMEOUT)
            here = RendezvousStoreInfo(host, port)
            return RendezvousInfo(PrefixStore(self.run_id, self._store), self.rank, self.world_size, here)

    host, _, port = parameters.endpoint.rpartition(":")
    rank, seconds = int(parameters.get("rank")), int(_TIMEOUT.total_seconds())
    return TorchrunRendezvous(host, int(port), rank, parameters.max_nodes, parameters.run_id, seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
