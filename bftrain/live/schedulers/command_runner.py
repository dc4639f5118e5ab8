"""Running a scheduler's commands: without a shell, with a time-out, and nothing of theirs is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from bftrain.live.schedulers.pilot_backend import Command, CommandFailed

_NOT_RUN: Final = 127
_TOO_SLOW: Final = 124
_BUFFERED: Final = 1 << 16  # bytes of what a command prints, before it must wait for us
_SAID_LETTERS: Final = 500  # of an error, for people
# Options in the environment would change what commands print and do; we may run in a job; and BFTRAIN_ is ours
_OPTIONS: Final = (
    "SLURM_",
    "SBATCH_",
    "SQUEUE_",
    "SINFO_",
    "SCANCEL_",
    "SCONTROL_",
    "SACCTMGR_",
    "PBS_",
    "QSUB_",
    "BFTRAIN_",
)
_KEPT: Final = frozenset({"SLURM_CONF", "PBS_CONF_FILE", "PBS_DEFAULT", "PBS_SERVER", "PBS_EXEC"})


class CommandRunner:
    """Runs commands, each for at most ``timeout_s``. ``more`` is added to their environment."""

    def __init__(self, *, timeout_s: float = 20.0, more: Mapping[str, str] | None = None) -> None:
        self._timeout_s = timeout_s
        self._env = {**environment(os.environ), **(more or {})}

    async def __call__(self, command: Command) -> str:
        """Run a command and give what it printed; CommandFailed if it fails or takes too long."""
        argv = command.argv
        try:
            transport, process = await self._started(command)
        except OSError as error:
            raise CommandFailed(argv, _NOT_RUN, f"cannot be run: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._timeout_s):
                out, err = await process.communicate(command.stdin.encode() or None)
        except TimeoutError as error:
            raise CommandFailed(argv, _TOO_SLOW, f"did not answer within {self._timeout_s:g} s") from error
        finally:
            await _ended(transport, process)
        code = process.returncode
        if code:
            said = (err or out).decode(errors="replace").strip()
            raise CommandFailed(argv, code, said[-_SAID_LETTERS:], out.decode(errors="replace"))
        return out.decode(errors="replace")

    async def _started(self, command: Command) -> tuple[asyncio.SubprocessTransport, Process]:
        """Start a command as ``create_subprocess_exec`` does, which keeps its transport to itself."""
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(limit=_BUFFERED, loop=loop),
            *command.argv,
            stdin=subprocess.PIPE if command.stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._env,
            umask=0o077,  # jobs inherit it
            start_new_session=True,
        )
        return transport, Process(transport, protocol, loop)


async def _ended(transport: asyncio.SubprocessTransport, process: Process) -> None:
    """See that a command is over."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    # What it started in a session of its own may hold its pipes for long, and the wait is for their end too
    for number in range(3):
        pipe = transport.get_pipe_transport(number)
        if isinstance(pipe, asyncio.WriteTransport) and pipe.get_write_buffer_size():
            pipe.abort()  # it would close only after all is written
        elif pipe is not None:
            pipe.close()
    await process.wait()


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Give what of an environment commands, and so jobs, may see: no options for them, nothing of a job we run in."""
    return {name: value for name, value in given.items() if name in _KEPT or not name.startswith(_OPTIONS)}


def in_pieces(words: Sequence[str], most: int = 500) -> list[Sequence[str]]:
    """Cut many words into pieces that fit on a command line."""
    return [words[begin : begin + most] for begin in range(0, len(words), most)]
