"""Runs the passes of a sweep in processes of this machine.

A runner process, ``python -m bftrain_replay.sweeping.local_executor``, forks one child for each pass. A child shares
the loaded inputs with its siblings, and its death costs its pass alone. The runner has one thread, which makes forking
safe even if the calling program has threads.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Final

import bftrain
from bftrain import registry
from bftrain.errors import BftrainError, NotAvailable
from bftrain.values import wire
from bftrain_elastic.agent.process_tree import die_with
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.simulation.engine import KeepGoing
from bftrain_replay.study.forked_pass import ForkedPass
from bftrain_replay.sweeping.sweep_inputs import input_key, loaded
from bftrain_replay.sweeping.sweep_passes import PassOutcome, Stopping, SweepPass, Tell, failed, work

# An encoded outcome, or the finished fraction of each running pass by its ID
Message = bytes | dict[str, float]

_LOOK_EVERY_S: Final = 0.1
_PATIENCE_S: Final = 5.0  # seconds for a runner to exit after it closed the connection
_MODULE: Final = "bftrain_replay.sweeping.local_executor"
# Several passes that each take all cores for their arrays are slower than one, and threads make forking unsafe
_ONE_THREAD: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class LocalExecutor:
    """Runs passes in ``workers`` processes; the file ``prints`` gets what their code prints."""

    def __init__(self, workers: int, prints: Path) -> None:
        self._workers = workers
        self._prints = prints

    def outcomes(self, jobs: Sequence[SweepPass], tell: Tell, stopping: Stopping) -> Iterator[PassOutcome]:
        """Run all passes."""
        connection, runner = self._start_runner()
        remaining, prints = len(jobs), ""
        try:
            for message in _messages(connection, jobs, self._workers):
                if isinstance(message, bytes):
                    remaining -= 1
                    yield wire.decode(message, PassOutcome)
                elif message is not None:
                    tell(message)
                if not remaining or stopping():
                    return
            with suppress(subprocess.TimeoutExpired):
                runner.wait(_PATIENCE_S)
        finally:
            if runner.returncode is None:
                os.killpg(runner.pid, signal.SIGKILL)  # the group includes its children
                runner.wait()
            connection.close()
            with suppress(OSError):
                prints = self._prints.read_text(errors="replace").strip()
                if not prints:
                    self._prints.unlink()
        last = prints.splitlines()[-1] if prints else f"the runner {_exit_reason(runner.returncode)}"
        raise NotAvailable(f"the workers are lost: {last}", where=str(self._prints), fix="start the command again")

    def _start_runner(self) -> tuple[Connection[object, Message], subprocess.Popen[bytes]]:
        # The runner must import the same packages as this process
        paths = [Path(bftrain.__file__).parents[1], Path(__file__).parents[2], os.environ.get("PYTHONPATH")]
        found_in = {"PYTHONPATH": os.pathsep.join(str(path) for path in paths if path)}
        ours, theirs = Pipe()
        with theirs, self._prints.open("ab") as prints:
            return ours, subprocess.Popen(  # noqa: S603 - our own module, by our own Python
                # -P: files in the current folder must not shadow our modules
                [sys.executable, "-P", "-m", _MODULE, str(os.getpid()), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=prints,
                stderr=prints,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), **found_in},
                start_new_session=True,  # Ctrl-C reaches only the main program, which then kills the group
            )


def _messages(connection: Connection, jobs: Sequence[SweepPass], workers: int) -> Iterator[Message | None]:
    """Send the passes and yield the runner's messages until it is lost; yield ``None`` after a silent interval.

    Only errors of the connection end the messages: errors of the caller are raised where they occur.
    """
    with suppress(EOFError, OSError):
        connection.send((jobs, workers))
        while True:
            yield connection.recv() if connection.poll(_LOOK_EVERY_S) else None


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    hint = ", as happens when memory runs out" if -code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{hint}"


def _run(jobs: Sequence[SweepPass], workers: int) -> Iterator[Message]:
    """Run all passes in children of this process."""
    waiting, shown = deque(jobs), dict[str, float]()
    running: dict[str, tuple[SweepPass, ForkedPass[bytes], float]] = {}  # passes, children, start times
    uses = Counter[Hashable](input_key(source, job.seed) for job in jobs for source in (job.log, job.tasks))
    registry.load("solver", "exact")  # saves an import in most children; other solvers may start threads
    if any(isinstance(job.how, RoundSettings) for job in jobs):
        import scipy.optimize  # noqa: F401, PLC0415 - as above, 0.5 s; starts no thread
    while waiting or running:
        while waiting and len(running) < workers:
            job = waiting.popleft()
            _load_shared(job, uses)
            running[job.id] = job, ForkedPass(partial(_outcome_of, job)), time.monotonic()
        wait([child.connection for _, child, _ in running.values()], _LOOK_EVERY_S)
        for _, child, _ in running.values():
            child.refresh()
        shares = {name: child.progress.simulated_s for name, (_, child, _) in running.items() if child.running}
        if shares != shown:
            yield shares
        shown = shares
        for job, child, start_s in list(running.values()):
            if not child.running:
                del running[job.id]
                died = f"its worker {_exit_reason(child.exit_code)}"
                yield child.result or wire.encode(failed(job, died, time.monotonic() - start_s))


def _load_shared(job: SweepPass, uses: Counter[Hashable]) -> None:
    """Load the inputs that several passes need; a child loads other inputs."""
    with suppress(BftrainError, OSError):  # the pass reports an input that cannot be loaded
        for source in (job.log, job.tasks):
            if uses[input_key(source, job.seed)] > 1:
                loaded(source, job.seed)


def _outcome_of(job: SweepPass, keep_going: KeepGoing) -> bytes:
    gc.freeze()  # prevents copies of all inputs by the first collection
    outcome = work(job, lambda share: keep_going(share, 0))
    sys.stdout.flush()  # this process will be killed
    return wire.encode(outcome)


def main() -> None:
    """Run the requested passes; the caller kills this process."""
    die_with(int(sys.argv[1]))
    with suppress(EOFError, OSError), Connection(int(sys.argv[2])) as connection:
        for message in _run(*connection.recv()):
            connection.send(message)


if __name__ == "__main__":
    main()
