"""An interrupted replay goes on to the same files, wherever it was stopped and however its file was cut off."""

from __future__ import annotations

import errno
import io
import random
from pathlib import Path
from typing import IO, Any

import pytest
from msgspec.structs import replace
from typing_extensions import Buffer

from bftrain.errors import BadInput
from bftrain.ports import SolverCapabilities
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain_replay.resume.solver_cache import AnswerFile, AnswerOrigin, origin_of
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study import ReplayStudy, study
from tests.helpers.tables import table_of
from tests.unit.replay.cases import log_of, study_files, task

LOG = log_of(
    (0.0, "abcde", ""), (70.0, "fg", "ab"), (140.0, "hi", "c"), (150.0, "", "hf"), (500.0, "ab", "de"), end_s=900.0
)
TASKS = [
    task("x", rate=(10.0, 19.0, 25.0), work_samples=5000.0, grow_cost_s=5.0, shrink_cost_s=3.0),
    task("y", rate=(11.3, 16.1, 22.7, 31.0), work_samples=9000.0, start_cost_s=4.0, grow_cost_s=2.0),
    task("z", rate=(7.1, 15.3), submit_s=33.0, shrink_cost_s=8.0),
]
# highs answers nothing in so short a time, so greedy is asked too: both kinds of answers are in the file
SETTINGS = ReplaySettings(max_tasks=2, solver="highs", solver_deadline_s=1e-9)
BASELINE = "equal-share"


def origin(settings: ReplaySettings = SETTINGS) -> AnswerOrigin:
    return origin_of(LOG, TASKS, settings, BASELINE)


def replayed(
    path: Path, stop_after: int | None, settings: ReplaySettings = SETTINGS, *, resume: bool = True
) -> ReplayStudy:
    """Replay until ``watch`` was asked so many times."""
    asked = 0

    def watch(_name: str, _simulated_s: float, _decisions: int) -> bool:
        nonlocal asked
        asked += 1
        return stop_after is None or asked <= stop_after

    with AnswerFile(path, origin(settings), resume=resume) as answers:
        return study(LOG, TASKS, settings, baseline=BASELINE, watch=watch, answers=answers)


@pytest.fixture(scope="module")
def in_one_go(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    done = study(LOG, TASKS, SETTINGS, baseline=BASELINE)
    assert len(done.result.decisions.fallbacks) > 5
    return study_files(done, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("seed", range(8))
def test_it_goes_on_to_the_same_files(seed: int, in_one_go: dict[str, bytes], tmp_path: Path) -> None:
    dice, path = random.Random(seed), tmp_path / "answers"  # noqa: S311 - places to stop at, not secrets
    part = replayed(path, stop_after=dice.randint(0, 10))
    while not part.complete:
        if dice.random() < 0.5:  # as if it had been killed: any number of bytes never came to the disk
            content = path.read_bytes()
            path.write_bytes(content[: dice.randint(0, len(content))])
        part = replayed(path, stop_after=dice.randint(0, 40))
    assert study_files(part, tmp_path / "out") == in_one_go


def test_stopping_again_before_the_old_answers_are_used_up_loses_none(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    replayed(path, stop_after=20)
    before = path.read_bytes()
    replayed(path, stop_after=3)
    assert path.read_bytes() == before


class Counting:
    """Stays where it is, and counts how often it was asked."""

    name = "counting"
    capabilities = SolverCapabilities(any_coupling=True)

    def __init__(self) -> None:
        self.asked = 0

    def solve(self, table: ValueTable, _limits: Limits) -> Solution:
        self.asked += 1
        if self.asked == 3:
            raise RuntimeError("no more")
        return Solution(
            sizes={each.name: self.asked for each in table.problem.tasks},
            value=0.5,
            bound=None,
            termination=Termination.TIME_LIMIT,
            quality=Quality.FEASIBLE,
            solver=self.name,
            solver_words="time is up",
            wall_s=2.5,
        )


def test_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    solver, table = Counting(), table_of([[0.0, 1.0, 2.0]], pool=2)
    with AnswerFile(tmp_path / "answers", origin()) as answers:
        answers.begin("counting")
        given = [answers.through(solver).solve(table, Limits()) for _ in range(3)]  # type: ignore[arg-type]  # a solver for tests
    with AnswerFile(tmp_path / "answers", origin(), resume=True) as answers:
        answers.begin("counting")
        again = [answers.through(solver).solve(table, Limits()) for _ in range(3)]  # type: ignore[arg-type]  # as above
        assert answers.through(solver).capabilities == solver.capabilities  # type: ignore[arg-type, attr-defined]  # as above
        assert (again, solver.asked, answers.repeated_s) == (given, 3, 5.0)
        answers.through(solver).solve(table, Limits())  # type: ignore[arg-type]  # as above
        assert solver.asked == 4
    assert given[2].solver_words.startswith("raised RuntimeError: no more, at ")


def test_what_it_took_before_counts_as_time_that_it_took(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    first = replayed(path, stop_after=None)
    second = replayed(path, stop_after=None)
    assert second.result.wall_s >= sum(first.result.decisions.solve_s)
    assert second.result.decisions.solve_s.tolist() == first.result.decisions.solve_s.tolist()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"settings": {"max_tasks": 3}}, "max_tasks"),
        ({"log": "0"}, "log"),
        ({"objective_file": "1"}, "the file of the"),
    ],
)
def test_other_inputs_or_options_are_refused_and_named(changes: dict[str, object], named: str, tmp_path: Path) -> None:
    path = tmp_path / "answers"
    replayed(path, stop_after=5)
    if "settings" in changes:
        changes = {"settings": origin().settings | {"max_tasks": 3}}
    with pytest.raises(BadInput, match=f"was interrupted with others of these: {named}.*give the same inputs"):
        AnswerFile(path, replace(origin(), **changes), resume=True).__enter__()


def test_the_file_of_an_objective_belongs_to_it(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    settings = ReplaySettings(objective=f"{mine}:values")
    sums = []
    for text in ("one", "two"):
        mine.write_text(text, encoding="utf-8")
        sums.append(origin(settings).objective_file)
    assert len({"", *sums}) == 3


@pytest.mark.parametrize("line", ['"another"', "[1,[1,1,1,1,1,1,1],null,null,"])
def test_answers_to_something_else_are_noticed(line: str, tmp_path: Path) -> None:
    path = tmp_path / "answers"
    replayed(path, stop_after=5)
    lines = path.read_text(encoding="utf-8").splitlines()
    place = 1 if line.startswith('"') else 2
    lines[place] = line
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(BadInput, match=rf"answers:{place + 1}: .*leave --resume out to begin again"):
        replayed(path, stop_after=None)


def test_answers_for_another_pool_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    replayed(path, stop_after=5)
    path.write_text(path.read_text(encoding="utf-8").replace("\n[5,", "\n[6,", 1), encoding="utf-8")
    with pytest.raises(BadInput, match=r"answers:3: does not answer what this replay asks"):
        replayed(path, stop_after=None)


class FillingDisk(io.BytesIO):
    """A file on a disk that is full after a thousand bytes."""

    def write(self, data: Buffer) -> int:
        if self.tell() + len(bytes(data)) > 1000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def test_a_full_disk_ends_the_replay_and_does_not_pass_for_failed_solvers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, disk, really = tmp_path / "answers", FillingDisk(), Path.open

    def opened(self: Path, mode: str = "r", **how: Any) -> IO[Any]:  # noqa: ANN401 - handed through
        return disk if self == path else really(self, mode, **how)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(OSError, match="No space left on device") as ended:
        replayed(path, stop_after=None)
    assert ended.value.filename == str(path)


def test_without_resume_it_begins_from_the_start(in_one_go: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "answers"
    path.write_text("anything\n", encoding="utf-8")
    assert study_files(replayed(path, stop_after=None, resume=False), tmp_path / "out") == in_one_go
