"""Probe jobs: short jobs in a Slurm's main queue, each of which says when it began."""

from __future__ import annotations

import itertools
import os
import secrets
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import msgspec

from bftrain.errors import BadInput, NotAvailable
from bftrain.live.schedulers.pilot_backend import CommandFailed, environment, found_all
from bftrain.nodesets import expand

_REMEDY: Final = "run it where Slurm's commands are installed"
_COMMAND_S: Final = 60.0  # for sbatch, squeue and scancel
_SOON_S: Final = 0.01  # between looks for what a job wrote
_LATER_S: Final = 0.2
_YOUNG_S: Final = 5.0
_LOOK_S: Final = 5.0  # between looks at the queue
_SCRIPT: Final = """\
#!/bin/sh
echo "$(date +%s.%N) $SLURM_JOB_NODELIST" >{file}.part && mv {file}.part {file}
"""


class ProbeWait(msgspec.Struct, frozen=True, kw_only=True):
    """The wait of a probe job, from the return of sbatch, or the call of srun, to its start or end."""

    wait_s: float
    submitted_s: float  # when sbatch was called; since 1970
    started_s: float
    nodes: tuple[str, ...]


class ProbeJobs:
    """Submits probe jobs with ``sbatch``, or runs them with ``srun``; leaves none behind at the end of the block.

    ``folder`` is seen by the nodes: jobs write there when they began.
    """

    def __init__(self, how: str, *, nodes: int, partition: str, options: Sequence[str], folder: Path) -> None:
        if not (found := found_all((how, "squeue", "scancel"), _REMEDY)).ok:
            raise NotAvailable(found.reason, where="Slurm", fix=found.fix)
        self._how = how
        self.name = f"bftrain-measure-{secrets.token_hex(4)}"
        self._words = [f"--job-name={self.name}", f"--nodes={nodes}", "--exclusive", "--time=1", *options]
        self._words += [f"--partition={partition}"] if partition else []
        self._env = environment(os.environ)
        self._parent = folder
        self._folder = folder
        self._numbers = itertools.count(1)  # also for several threads
        self._over = False

    def __enter__(self) -> Self:
        """Make a folder for what jobs write."""
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=".bftrain-measure-", dir=self._parent.absolute()))
        except OSError as error:
            raise BadInput(f"cannot be written: {error.strerror}", where=str(self._parent)) from error
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel what is left, and remove the folder."""
        try:
            self.cancel()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def cancel(self) -> None:
        """Cancel what is left; threads that wait for a job end."""
        self._over = True
        with suppress(CommandFailed):  # a probe job is over after a minute anyhow
            self._run(["scancel", "--quiet", "--me", f"--name={self.name}"])

    @property
    def command(self) -> str:
        """The command by which a job is submitted, in words."""
        return shlex.join([self._how, *self._words])

    def check(self) -> None:
        """Raise ``BadInput`` if such a job can never run."""
        try:
            self._run([self._how, *self._words, "--test-only", *(["true"] if self._how == "srun" else [])], "#!/bin/sh")
        except CommandFailed as error:
            fix = "see --partition and --option"
            raise BadInput(f"a probe job is refused: {error.said}", where=self.command, fix=fix) from error

    def wait(self, patience_s: float) -> ProbeWait:
        """Run one probe job, and return how long it waited."""
        return self._srun(patience_s) if self._how == "srun" else self._sbatch(patience_s)

    def _srun(self, patience_s: float) -> ProbeWait:
        begun = time.time()
        said = self._run(["srun", "--quiet", *self._words, "printenv", "SLURM_JOB_NODELIST"], patience_s=patience_s)
        now = time.time()
        return ProbeWait(wait_s=now - begun, submitted_s=begun, started_s=now, nodes=_nodes(said))

    def _sbatch(self, patience_s: float) -> ProbeWait:
        file = self._folder / str(next(self._numbers))
        words = ["sbatch", "--parsable", "--output=/dev/null", "--input=/dev/null", *self._words]
        begun = time.time()
        job = self._run(words, _SCRIPT.format(file=shlex.quote(str(file)))).strip().partition(";")[0]
        submitted, looked = time.time(), time.monotonic()
        deadline = looked + patience_s
        while not file.exists():
            now = time.monotonic()
            if self._over:
                raise NotAvailable("it was cancelled", where=f"job {job}")
            if now > deadline:
                fix = "measure when the queue is shorter, or give a larger --patience"
                raise NotAvailable(f"a probe job waits for more than {patience_s:g} s", where=f"job {job}", fix=fix)
            if now - looked > _LOOK_S:
                looked = now
                if not self._run(["squeue", "--noheader", "--me", f"--name={self.name}"]).strip() and not file.exists():
                    time.sleep(1.0)  # a file on another machine may be seen late
                    if not os.listdir(self._folder):  # noqa: PTH208 - it makes NFS look again, as exists() does not
                        fix = "name a folder that nodes see: --folder"
                        raise NotAvailable("a probe job ended and wrote nothing", where=str(self._folder), fix=fix)
            time.sleep(_SOON_S if time.time() - submitted < _YOUNG_S else _LATER_S)
        at, _, nodes = file.read_text(encoding="utf-8").partition(" ")
        file.unlink()
        return ProbeWait(wait_s=float(at) - submitted, submitted_s=begun, started_s=float(at), nodes=_nodes(nodes))

    def _run(self, words: Sequence[str], stdin: str = "", *, patience_s: float = _COMMAND_S) -> str:
        try:
            done = subprocess.run(  # noqa: S603 - Slurm's commands, as words that no shell reads
                words,
                input=stdin,
                env=self._env,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=patience_s,
            )
        except subprocess.TimeoutExpired as error:
            raise CommandFailed(words, 124, f"did not answer within {patience_s:g} s") from error
        except OSError as error:
            raise CommandFailed(words, 127, f"cannot be run: {error.strerror}") from error
        if done.returncode:
            raise CommandFailed(words, done.returncode, (done.stderr or done.stdout).strip()[-500:])
        return done.stdout


def _nodes(text: str) -> tuple[str, ...]:
    try:
        return tuple(expand(text.strip()))
    except ValueError:
        return (text.strip(),)
