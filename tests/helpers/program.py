"""Run ``bftrain`` as its users do: the installed program, in a process of its own, in a pipe or on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import resource
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

PROGRAM = str(Path(sys.executable).with_name("bftrain"))
ANSI = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()][A-Z0-9])")
_PATIENCE_S = 300.0  # for what hangs; a machine that is busy makes everything ten times as long


@dataclass(frozen=True)
class Ended:
    """How a run ended: its exit code and what it said."""

    code: int
    out: str
    err: str

    def __post_init__(self) -> None:
        """Check that users see no traceback after any error."""
        assert "Traceback" not in self.err, self.err
        assert "internal error" not in self.err, self.err


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of a plain shell: nothing in it decides about colour, width or language."""
    odd = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "TTY_", "PYTHON", "COVERAGE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(odd)}
    return kept | {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color"} | changes


def bftrain(
    *arguments: str | Path,
    stdin: str | bytes = b"",
    out: IO[bytes] | int = subprocess.PIPE,
    cwd: Path | None = None,
    **env: str,
) -> Ended:
    """Run ``bftrain`` in pipes."""
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        stdout=out,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(**env),
        timeout=_PATIENCE_S,
        check=False,
    )
    return Ended(done.returncode, (done.stdout or b"").decode(), done.stderr.decode())


def start(*arguments: str | Path, cwd: Path | None = None, **env: str) -> subprocess.Popen[bytes]:
    """Start ``bftrain`` in pipes and leave it running."""
    return subprocess.Popen(
        [PROGRAM, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(**env),
    )


def let_work(running: subprocess.Popen[bytes], core_s: float) -> None:
    """Wait until what was started has been on a core for so long, regardless of other load."""
    deadline = time.monotonic() + _PATIENCE_S
    while _core_s(running.pid) < core_s:
        assert running.poll() is None, f"it ended before it had worked for {core_s:g} s"
        assert time.monotonic() < deadline, f"it has not worked for {core_s:g} s in {_PATIENCE_S:g} s"
        time.sleep(0.02)


def children_core_s() -> float:
    """Return the processor time of all finished child processes; it does not depend on other load."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _core_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shell(command: str, cwd: Path | None = None, **env: str) -> Ended:
    """Run a line of bash in which ``bftrain`` is on PATH; the code is that of the last part of a pipe to fail."""
    path = f"{Path(PROGRAM).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(PATH=path, **env),
        timeout=_PATIENCE_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def on_terminal(*arguments: str | Path, columns: int = 80, cwd: Path | None = None, **env: str) -> Ended:
    """Run ``bftrain`` on a terminal of ``columns``; what it says comes as one text, as it would be seen."""
    return _seen([PROGRAM, *map(str, arguments)], columns, cwd, environment(**env))


def shell_on_terminal(lines: str, *, columns: int = 80, cwd: Path | None = None, found: bool = True) -> Ended:
    """Run lines of bash on a terminal, as a reader of a page would type them; the first that fails is the last.

    ``found`` says whether ``bftrain`` is on PATH.
    """
    ours = str(Path(PROGRAM).parent)
    others = [part for part in os.environ["PATH"].split(os.pathsep) if part != ours]
    path = os.pathsep.join([ours, *others] if found else others)
    return _seen(["bash", "-eu", "-c", lines], columns, cwd, environment(PATH=path))


def _seen(command: list[str], columns: int, cwd: Path | None, env: dict[str, str]) -> Ended:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=env, start_new_session=True
    ) as running:
        os.close(theirs)
        chunks = []
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # how a terminal ends when no process holds its other side
                break
            if not chunk:
                break
            chunks.append(chunk)
        try:
            code = running.wait(timeout=_PATIENCE_S)
        finally:
            running.kill()  # otherwise the end of the block would wait for one that hangs
    os.close(ours)
    text = b"".join(chunks).decode().replace("\r\n", "\n")
    return Ended(code, text, text)


def check_help(run: Callable[..., Any], command: Sequence[str]) -> None:
    """Check that ``run`` prints the help of a command for a plain terminal of 80 columns."""
    ended = run(*command, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"Usage: {' '.join(['bftrain', *command])} ")
    assert max(map(len, ended.out.splitlines())) <= 80
    assert not ANSI.search(ended.out)
    assert run(*command, "-h").out == ended.out
