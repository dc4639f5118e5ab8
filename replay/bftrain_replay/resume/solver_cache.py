"""Solver answers, kept in a file while a replay runs, so that an interrupted one can be resumed.

A resumed replay repeats its beginning with the stored answers. All else in a replay follows from its inputs, so it
comes to where it was, and its files have the same bytes as those of an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, Self

import msgspec

from bftrain.deciding.solve_with_fallback import ask
from bftrain.errors import BadInput
from bftrain.files import naming
from bftrain.ports import Availability, Solver, solver_capabilities
from bftrain.values import wire
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_replay import plugin_files
from bftrain_replay.provenance import tasks_sha256, versions_with
from bftrain_replay.results.decider_counts import CEILING
from bftrain_replay.simulation.replay_settings import ReplaySettings

FORMAT: Final = "bftrain answers 1"
DEDICATED: Final = "dedicated pool"
BASELINE: Final = "baseline"
BESIDE: Final = (CEILING, DEDICATED, BASELINE)  # replays that may have processes, and so files, of their own
_FLUSH_AFTER_S: Final = 1.0  # of work that would have to be done again
_AS_ANSWERED: Final = ("value", "bound", "termination", "quality", "solver", "solver_words", "wall_s")
_BEGIN_AGAIN: Final = "leave --resume out to begin again"


class AnswerOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The problem that answers belong to; answers to others are of no use."""

    format: str
    log: str
    tasks: str
    objective_file: str  # SHA-256, if the objective is a file's
    baseline: str
    settings: dict[str, object]
    versions: dict[str, str]

    def differences(self, other: AnswerOrigin) -> list[str]:
        """Return the names of the parts that differ."""
        found = [name for name in ("format", "log", "tasks", "baseline") if getattr(self, name) != getattr(other, name)]
        if self.objective_file != other.objective_file:
            found.append("the file of the objective, the admission or a metric")
        names = self.settings.keys() | other.settings.keys()
        found += sorted(name for name in names if self.settings.get(name) != other.settings.get(name))
        if self.versions != other.versions:
            found.append("versions")
        return found


def origin_of(log: EventLog, tasks: Sequence[TaskSpec], settings: ReplaySettings, baseline: str) -> AnswerOrigin:
    """Return the inputs and settings of a replay."""
    return AnswerOrigin(
        format=FORMAT,
        log=log.sha256,
        tasks=tasks_sha256(tasks),
        objective_file=plugin_files.sha256(settings),
        baseline=baseline,
        settings=wire.plain(settings),
        versions=versions_with(settings.solver),
    )


class _Answer(msgspec.Struct, array_like=True, frozen=True):
    """One answer; sizes, and kinds if nodes have any, are in the order of the competing tasks."""

    pool: int
    sizes: tuple[int, ...]
    value: float | None
    bound: float | None
    termination: Termination
    quality: Quality
    solver: str
    solver_words: str
    wall_s: float
    kinds: tuple[str, ...] = ()

    @classmethod
    def of(cls, solution: Solution, table: ValueTable) -> Self:
        """Record a solution."""
        names = [task.name for task in table.problem.tasks] if solution.sizes else []
        return cls(
            pool=table.problem.pool,
            sizes=tuple(solution.sizes[name] for name in names),
            kinds=tuple(solution.kinds.get(name, "") for name in names) if solution.kinds else (),
            **{name: getattr(solution, name) for name in _AS_ANSWERED},
        )

    def solution(self, table: ValueTable) -> Solution:
        """Return the recorded solution."""
        names = [task.name for task in table.problem.tasks]
        return Solution(
            sizes=dict(zip(names, self.sizes, strict=False)),
            kinds={name: kind for name, kind in zip(names, self.kinds, strict=False) if kind},
            **{name: getattr(self, name) for name in _AS_ANSWERED},
        )


def beside(path: Path, replay: str) -> Path:
    """Return the path of the answers of a replay in a process of its own."""
    return path.with_name(f"{path.stem}-{replay.replace(' ', '-')}{path.suffix}")


class AnswerFile:
    """The file of a replay's answers: first repeats the stored ones, then records new ones.

    Use it in a ``with`` block. The file is made by the first :meth:`begin`, so that bad input leaves none behind and
    keeps an earlier one; it is removed by :meth:`discard`.
    """

    def __init__(self, path: Path, origin: AnswerOrigin, *, resume: bool = False) -> None:
        self.repeated_s = 0.0  # what the repeated answers of the replay in hand took when they were new
        self._path, self._origin, self._asked_to_resume = path, origin, resume
        self._resume = resume and path.is_file()
        self._line, self._unsaved_s = 0, 0.0
        self._trouble: BadInput | OSError | None = None
        self._old: IO[bytes] | None = None
        self._new: IO[bytes] | None = None

    def __enter__(self) -> Self:
        if self._resume:
            self._old = self._path.open("rb")
            try:
                self._compare()
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._old, self._new):
            if file is not None:
                with naming(self._path):
                    file.close()

    def beside(self, replay: str) -> AnswerFile:
        """Return the file of a replay in another process, to be resumed together with this one."""
        return AnswerFile(beside(self._path, replay), self._origin, resume=self._asked_to_resume)

    def discard(self) -> None:
        """Remove the file: the replay is complete."""
        if self._new is not None:
            with suppress(OSError):  # entries that a full disk refuses are optional
                self._new.close()
        for path in (self._path, *(beside(self._path, replay) for replay in BESIDE)):
            path.unlink(missing_ok=True)

    def begin(self, replay: str) -> None:
        """Start with the replay of this name."""
        self.repeated_s = 0.0
        if self._old is None and self._new is None:
            self._new = self._path.open("wb")
            self._append(wire.encode(self._origin), flush=True)
        heading = wire.encode(replay)
        line = self._next()
        if line is None:
            self._append(heading)
        elif line != heading:
            raise self._foreign()

    def check(self) -> None:
        """Raise an error of :meth:`ask`, which the replay took for a failed solver."""
        if self._trouble is not None:
            raise self._trouble

    def through(self, solver: Solver) -> Solver:
        """Return a solver that repeats stored answers of ``solver``, and calls it for new ones."""
        return _Remembered(solver, self)

    def ask(self, solver: Solver, table: ValueTable, limits: Limits) -> Solution:
        """Return the next stored answer; if there is none, solve and record it."""
        line = self._next()
        if line is not None:
            try:
                answer = self._read(line, table)
            except BadInput as error:
                self._trouble = error
                raise
            self.repeated_s += answer.wall_s
            return answer.solution(table)
        solution = ask(solver, table, limits)
        self._unsaved_s += solution.wall_s
        flush = self._unsaved_s > _FLUSH_AFTER_S
        try:
            self._append(wire.encode(_Answer.of(solution, table)), flush=flush)
        except OSError as error:
            self._trouble = error
            raise
        if flush:
            self._unsaved_s = 0.0
        return solution

    def _next(self) -> bytes | None:
        """Return the next stored line; if there is none, continue after the last complete one."""
        if self._old is None:
            return None
        end = self._old.tell()
        line = self._old.readline()
        self._line += 1
        if line.endswith(b"\n"):
            return line[:-1]
        self._old.close()
        self._old = None
        self._new = self._path.open("r+b")
        self._new.seek(end)
        self._new.truncate()
        return None

    def _append(self, line: bytes, *, flush: bool = False) -> None:
        if self._new is None:
            return
        with naming(self._path):
            self._new.write(line + b"\n")
            if flush:
                self._new.flush()

    def _compare(self) -> None:
        line = self._next()
        if line is None:  # it ended before anything was asked
            self._append(wire.encode(self._origin))
            return
        different = wire.decode(line, AnswerOrigin, where=f"{self._path}:1", fix=_BEGIN_AGAIN).differences(self._origin)
        if different:
            raise BadInput(
                f"was interrupted with others of these: {', '.join(different)}",
                where=str(self._path),
                fix=f"give the same inputs and options, or {_BEGIN_AGAIN}",
            )

    def _read(self, line: bytes, table: ValueTable) -> _Answer:
        answer = wire.decode(line, _Answer, where=f"{self._path}:{self._line}", fix=_BEGIN_AGAIN)
        if answer.pool != table.problem.pool or len(answer.sizes) not in {0, len(table.problem.tasks)}:
            raise self._foreign()
        return answer

    def _foreign(self) -> BadInput:
        what = "does not answer what this replay asks"
        return BadInput(what, where=f"{self._path}:{self._line}", fix=_BEGIN_AGAIN)


class _Remembered:
    def __init__(self, solver: Solver, answers: AnswerFile) -> None:
        self._solver = solver
        self._answers = answers
        self.capabilities = solver_capabilities(solver)

    @property
    def name(self) -> str:
        return self._solver.name

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        return self._answers.ask(self._solver, table, limits)

    def available(self) -> Availability:
        return self._solver.available()
