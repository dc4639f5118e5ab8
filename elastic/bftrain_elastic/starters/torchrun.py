"""torchrun with fast starts: ``torchrun.py SIZE RANK WORKERS ADDRESS:PORT SCRIPT ...``.

This is torchrun's own agent with two parts replaced. Torch's rendezvous opens its port on all interfaces; here rank 0
listens on the given address only, and the training's store does too. And torchrun's workers import torch again; here
they are forks of an agent that has imported it, which start at once. It lies in a folder of its own, because Python
lets a script import all files beside it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters

_NAME: Final = "bftrain"
_TERMINATED: Final = 128 + signal.SIGTERM  # as a shell says it
_PATIENCE: Final = timedelta(minutes=5)  # in which all nodes have to be there


def main(words: list[str]) -> None:
    """Run a script under torchrun."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry
    from torch.distributed.launcher.api import elastic_launch
    from torch.distributed.run import config_from_args, parse_args

    size, rank, workers, endpoint, *script = words
    rendezvous_handler_registry.register(_NAME, _meeting_point)
    where = [f"--rdzv-backend={_NAME}", f"--rdzv-id={_NAME}", f"--rdzv-endpoint={endpoint}", f"--rdzv-conf=rank={rank}"]
    for what in ("multiprocessing.api", "agent.server.api"):  # failures and stops of the script are reported elsewhere
        logging.getLogger(f"torch.distributed.elastic.{what}").setLevel(logging.CRITICAL)
    asked = [f"--nnodes={size}", f"--nproc-per-node={workers}", *where, *script]
    config, *_ = config_from_args(parse_args(asked))
    config.start_method = "fork"
    try:
        elastic_launch(config, _worker)(os.getpid(), script)
    except ChildFailedError as error:  # the script's own last words are above; a page about them would hide them
        raise SystemExit(error.get_first_failure()[1].exitcode or 1) from None
    except SignalException as error:
        raise SystemExit(128 + error.sigval) from None


def _worker(parent: int, script: list[str]) -> None:
    """Run the script as ``python script.py`` would, in a fork of torchrun's agent."""
    import torch

    from bftrain_elastic.agent.prefork_server import run_script
    from bftrain_elastic.agent.process_tree import die_with
    from bftrain_elastic.worker.process_groups import shut_sockets

    die_with(parent)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # the agent answers them in ways of its own
    shut_sockets()  # the agent's port must close when the agent ends
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or torch.get_num_threads()))
    heard, tell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    code = run_script(script)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with suppress(BlockingIOError):
        if signal.SIGTERM in os.read(heard, 4096):  # the agent may have the signal too, and does not want our answer
            code = code or _TERMINATED
    sys.stdout.flush()
    sys.stderr.flush()
    if code:
        os._exit(code)


def _meeting_point(parameters: RendezvousParameters) -> RendezvousHandler:
    from torch.distributed import PrefixStore, TCPStore
    from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo
    from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

    from bftrain_elastic.worker.process_groups import GroupStore

    class TorchrunRendezvous(StaticTCPRendezvous):  # type: ignore[misc]  # torch is Any to the type checker
        """torch's static rendezvous, with rank 0 listening on one address only."""

        _meeting: Any = None

        def get_backend(self) -> str:
            return _NAME

        def next_rendezvous(self) -> RendezvousInfo:
            host, port = self.master_addr, self.master_port
            if self._meeting is None and self.rank == 0:
                self._meeting = GroupStore(host, port).store
            elif self._meeting is None:
                self._meeting = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_PATIENCE)
            here = RendezvousStoreInfo(host, port)
            return RendezvousInfo(PrefixStore(self.run_id, self._meeting), self.rank, self.world_size, here)

    host, _, port = parameters.endpoint.rpartition(":")
    rank, seconds = int(parameters.get("rank")), int(_PATIENCE.total_seconds())
    return TorchrunRendezvous(host, int(port), rank, parameters.max_nodes, parameters.run_id, seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
