"""Task records: what a live run stores of each task: its owner, its job and its progress."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, get_type_hints

import msgspec

from bftrain.values import checks
from bftrain.values.task import TaskSpec

NAME: Final = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_LARGEST_EXIT_CODE: Final = 125  # above it shells report commands that could not run or were killed
_LETTERS: Final = 100_000  # in all arguments and variables of a job together


def said(words: str, **schema: Any) -> msgspec.Meta:  # noqa: ANN401 - any value of a JSON schema
    """Describe a field; limits in ``schema`` are checked when a value is made."""
    return msgspec.Meta(description=words, extra_json_schema=schema or None)


def described(struct: type[msgspec.Struct], field: str) -> str:
    """Return the description of a field declared by :func:`said`."""
    metadata = get_type_hints(struct, include_extras=True)[field].__metadata__
    return next(str(part.description) for part in metadata if isinstance(part, msgspec.Meta))


class LiveTaskState(StrEnum):
    """State of a task; a submitted one runs if it holds nodes, and waits otherwise."""

    SUBMITTED = "submitted"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


UNFINISHED: Final = frozenset({LiveTaskState.SUBMITTED, LiveTaskState.PAUSED})


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The job of a task: a launcher's settings, see docs/how-to/backends.md. Without ``folder`` a new one is made."""

    argv: Annotated[
        tuple[Annotated[str, said("One word.", minLength=1)], ...],
        said("A script or command, and its arguments.", minItems=1),
    ]
    folder: Annotated[str, said("For commits and logs: an absolute path; a new one is made if it is empty.")] = ""
    cwd: Annotated[str, said("Where it runs: an absolute path.")] = "/"
    env: Annotated[Mapping[str, str], said("For its environment.")] = {}
    stop_grace_s: Annotated[float, said("Seconds that it has to save where it is when it is stopped.", minimum=0)] = (
        10.0
    )
    workers_per_node: Annotated[int, said("0: as many as a node has slots.", minimum=0)] = 0
    finish_code: Annotated[
        int | None,
        said(
            "The exit code, not 75, that says that all is done; other ends are started again.", minimum=1, maximum=125
        ),
    ] = None
    finish_file: Annotated[
        str, said("The file that says so if it is there when the program exits with 0; from the folder if relative.")
    ] = ""
    stall_limit_s: Annotated[
        float | None,
        said("Seconds without a step after which it gives its nodes back; 0: never. The site's if null.", minimum=0),
    ] = None

    environment: Annotated[str, said("One of the site's; its default if it is empty.")] = ""
    setup: Annotated[tuple[str, ...], said("Lines of bash that run before it, after those of the environment.")] = ()
    prefix: Annotated[
        tuple[Annotated[str, said("One word.", minLength=1)], ...],
        said("Words in front of the command, such as apptainer exec IMAGE; else those of the environment."),
    ] = ()
    python: Annotated[str, said("That runs the script; else that of the environment, or the nodes'.")] = ""

    def __post_init__(self) -> None:
        self._check_words()
        for name in ("folder", "cwd"):
            given = getattr(self, name)
            if given and not given.startswith("/"):
                checks.reject(self, name, f"must be an absolute path, not {given!r}")
        if any(not key or "=" in key for key in self.env):
            checks.reject(self, "env", "names must not be empty nor hold '='")
        checks.number(self, "stop_grace_s", at_least=0.0)
        checks.integer(self, "workers_per_node", at_least=0)
        if self.finish_code is not None:
            code = checks.integer(self, "finish_code", at_least=1)
            if code > _LARGEST_EXIT_CODE or code == os.EX_TEMPFAIL:
                checks.reject(self, "finish_code", f"must be at most {_LARGEST_EXIT_CODE}, and not {os.EX_TEMPFAIL}")
        if self.stall_limit_s is not None:
            checks.number(self, "stall_limit_s", at_least=0.0)

    def _check_words(self) -> None:
        words = [word for name in ("argv", "setup", "prefix") for word in checks.texts(self, name)]
        words += [*self.env.keys(), *self.env.values()]
        if not self.argv or not all(self.argv):
            checks.reject(self, "argv", "must be a script or command, and its arguments")
        if not all(self.prefix):
            checks.reject(self, "prefix", "holds an empty word")
        if any("\0" in word for word in (*words, self.cwd, self.folder, self.finish_file, self.python)):
            checks.reject(self, "argv", "holds a NUL character")
        if sum(map(len, words)) > _LETTERS:
            checks.reject(self, "argv", f"is too long together with env: more than {_LETTERS} characters")


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a task by its reports, and its measurements."""

    samples: float = 0.0  # of steps that were done for the first time
    equivalent_samples: float | None = None  # of a task that says its batches: as many of the initial one do as much
    earlier_samples: float | None = None  # of these, done by an earlier task in the same folder, if known
    step: int = 0  # the furthest one reported
    in_memory_step: int = 0  # the last one whose state is in the memory of at least two nodes
    committed_step: int = 0  # the last one whose state is on disk
    loss: float | None = None
    noise_scale: float | None = None  # of its gradients, smoothed over its reports
    node_s: float = 0.0  # node-seconds held
    started_s: float | None = None  # when it held nodes for the first time
    rescales: int = 0  # decided changes of size
    preemptions: int = 0  # moments at which it lost nodes
    failures: int = 0
    speeds: Mapping[int, float] = {}  # samples/s by size
    settled: tuple[int, ...] = ()  # sizes whose measured speed is reliable
    costs: Mapping[str, float] = {}  # seconds of grow, shrink, start
    # The running sum in the last report that had one: from which step, to which step, how many samples
    counted_since: int | None = None
    counted_step: int = 0
    counted_total: float = 0.0
    report_stride: int = 0  # the least difference between the steps of two reports of a process; 0: none was seen

    @property
    def done_samples(self) -> float:
        """Return the samples of its work that are done: if it says its batches, in samples of the initial one."""
        return self.samples if self.equivalent_samples is None else self.equivalent_samples

    @property
    def harvested(self) -> float:
        """Return the samples that this task has processed itself."""
        return self.samples - (self.earlier_samples or 0.0)


class LiveTaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One task; a ``number`` is never reused, a ``name`` can be once its task has ended."""

    number: int
    name: str
    uid: int
    user: str
    launcher: str
    spec: TaskSpec  # as it was submitted
    guessed: bool  # whether its speed is a guess, as none was given
    run: Run
    submitted_s: float
    state: LiveTaskState = LiveTaskState.SUBMITTED
    ended_s: float | None = None
    after: tuple[int, ...] = ()  # numbers of tasks that have to be done before
    reason: str = ""  # why it failed, or its last trouble
    progress: Progress = Progress()

    @property
    def unfinished(self) -> bool:
        """Whether the task is not over yet."""
        return self.state in UNFINISHED

    @property
    def work_left(self) -> float | None:
        """Samples left, if the total is known."""
        work = self.spec.work_samples
        return None if work is None else max(0.0, work - self.progress.done_samples)


def is_name(text: str) -> bool:
    """Return whether a task can have this name, which becomes part of paths, file names and addresses."""
    return re.fullmatch(NAME, text) is not None
