"""The fork server of agents: imports slow modules once, and forks the agents of one program on this machine.

Each agent forks its prefork server, and that one the workers, so that none of them imports these modules again. The
fork server does not watch its agents: each ends with the program, and runs on if the fork server ends.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from bftrain_elastic.agent import agent
from bftrain_elastic.agent.prefork_server import NOTICES, import_modules
from bftrain_elastic.agent.process_tree import die_with
from bftrain_elastic.wire.messages import decode

ORDER_LIMIT: Final = 65536  # bytes
_BLOCKED: Final = frozenset({*NOTICES, signal.SIGINT})  # until a fork has its own handlers


def serve(program: socket.socket) -> None:
    """Fork an agent for each order, until the program closes its end.

    An order brings a working directory, standard output and error, and a socket for the answer.
    """
    while True:
        order, descriptors, _, _ = socket.recv_fds(program, ORDER_LIMIT, 4)
        if not order:
            return
        signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)  # one that comes now would find our handlers in the child
        try:
            if os.fork() == 0:
                _run_agent(order, *descriptors)
        except OSError as error:  # the program sees that there is no answer
            sys.stderr.write(f"bftrain: cannot start an agent: {error.strerror}\n")
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
            for descriptor in descriptors:
                os.close(descriptor)


def _run_agent(order: bytes, folder: int, out: int, err: int, answer: int) -> NoReturn:
    code = 1
    try:
        gc.freeze()  # objects of the fork server must not close descriptors of this process
        os.setsid()
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.fchdir(folder)
        for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (err, 2), (answer, 3)):
            os.dup2(source, target)
        os.closerange(4, 4096)
        message = decode(order)
        if message["note"]:
            Path(message["note"]).write_bytes(Path("/proc/self/stat").read_bytes())
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()  # or all agents' workers would draw the same numbers
        # From here on the program knows us; it reads how far it came even if the fork server is killed now
        with socket.socket(fileno=3) as known:
            socket.send_fds(known, [b"%d" % os.getpid()], [os.pidfd_open(os.getpid())])
        os.closerange(3, 4096)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        code = agent.main(message["words"], forked=True)
    except BrokenPipeError:  # the agent is not wanted any more
        pass
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - as at the end of a program
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def main(arguments: list[str]) -> None:
    """Run a fork server: ``FD PROGRAM_PID FOLDER MODULE...``, where FD is its end of the socket to the program.

    If the program is killed while modules are imported, there is no agent yet that could remove FOLDER ("": none).
    """
    parent = int(arguments[1])

    def end(*_: object) -> NoReturn:
        if arguments[2] and os.getppid() != parent:
            shutil.rmtree(arguments[2], ignore_errors=True)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    die_with(parent, signal.SIGTERM)
    import_modules(arguments[3:])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # agents that ended are not kept
    with socket.socket(fileno=int(arguments[0])) as program, suppress(ConnectionError):
        serve(program)


if __name__ == "__main__":
    main(sys.argv[1:])
