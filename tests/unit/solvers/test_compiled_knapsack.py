"""The compiled knapsack: the answers of the one with numpy, what it declines, and how its library is found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from math import inf, nan
from pathlib import Path
from time import process_time

import numpy as np
import pytest

from bftrain_solvers.knapsack import library_file
from bftrain_solvers.knapsack.best_sizes import best_sizes_with_numpy
from bftrain_solvers.knapsack.compiled_knapsack import CompiledKnapsack, compiled_knapsack, compiled_library, why_numpy
from tests.helpers.knapsack_problems import KnapsackProblem, random_problem


@pytest.fixture
def compiled() -> CompiledKnapsack:
    """Return the compiled knapsack: where there is a compiler, an installation without it is a defect."""
    found = compiled_knapsack()
    if found is None and shutil.which((os.environ.get("CC", "").split() or ["cc"])[0]) is None:
        pytest.skip("there is no C compiler")
    assert found is not None, "the sources changed since bftrain was installed: run pip install -e . again"
    return found


def by_numpy(problem: KnapsackProblem) -> list[int]:
    found = best_sizes_with_numpy(problem.values, problem.present, problem.pool, inf)
    assert found.bound is None
    return found.sizes


@pytest.mark.parametrize("seed", range(20))
def test_both_give_the_same_sizes(compiled: CompiledKnapsack, seed: int) -> None:
    rng, solved = np.random.default_rng(seed), 0
    for _ in range(100):
        problem = random_problem(rng)
        sizes = compiled.best_sizes(*problem)
        if sizes is not None:
            solved += 1
            assert sizes == by_numpy(problem), problem
    assert solved > 60  # the others have extreme numbers


@pytest.mark.parametrize("seed", range(10))
def test_both_give_the_same_sizes_from_one_event_to_the_next(compiled: CompiledKnapsack, seed: int) -> None:
    """The last price is tried first; here it is mostly right."""
    rng = np.random.default_rng(1000 + seed)
    curves = np.cumsum(-np.sort(-rng.integers(0, 9, (12, 20)), axis=1), axis=1).astype(np.float64)
    values, pool, present = curves - curves[:, :1], 60, [0] * 12
    for _ in range(40):
        problem = KnapsackProblem(values, present, pool)
        present = compiled.best_sizes(*problem) or []
        assert present == by_numpy(problem)
        pool = max(1, pool + int(rng.integers(-3, 4)))
        present = [size if rng.random() < 0.9 else max(0, size - 1) for size in present]


@pytest.mark.parametrize(
    "values",
    [
        [[0.0, nan, 2.0]],
        [[0.0, inf, 2.0]],
        [[-inf, 1.0, 2.0]],
        [[0.0, 1e-320, 3e-320]],
        [[-1e9, 1.0], [-1e9, 3.0]],  # costs that would swamp the values
    ],
)
def test_extreme_numbers_are_declined(compiled: CompiledKnapsack, values: list[list[float]]) -> None:
    assert compiled.best_sizes(np.array(values), [0] * len(values), 1) is None


def test_much_work_is_declined(compiled: CompiledKnapsack) -> None:
    sizes = np.arange(65.0)
    row = np.where(sizes > 0, 100.0 * sizes**0.97 + 3.0 * (sizes % 7), 0.0)
    assert compiled.best_sizes(np.tile(row, (1000, 1)), [0] * 1000, 30_000) is None
    assert compiled.best_sizes(np.zeros((2, 4_000_000)), [0, 0], 5) is None


def test_no_table_takes_long(compiled: CompiledKnapsack) -> None:
    """It knows no deadline. The price is searched for among all edges of the curves, which are sorted row by row."""
    sizes, rates = np.arange(140_000.0), np.array([[90.0], [20.0]])
    started = process_time()
    assert compiled.best_sizes(rates * sizes ** np.array([[0.95], [0.6]]), [0, 0], 140_000) is not None
    assert process_time() - started < 0.5  # it takes 0.005 s


def test_what_does_not_fit_together_is_refused(compiled: CompiledKnapsack) -> None:
    with pytest.raises(ValueError, match="2 rows, but 1 present sizes"):
        compiled.best_sizes(np.zeros((2, 3)), [0], 1)


def test_other_forms_of_a_table_are_read_right(compiled: CompiledKnapsack) -> None:
    values = np.array([[0.0, 5, 6, 7], [0, 4, 9, 9]])
    reversed_twice = np.ascontiguousarray(values[:, ::-1])[:, ::-1]
    for form in (np.asfortranarray(values), reversed_twice, values.astype(np.int32), values.astype(np.float32)):
        assert compiled.best_sizes(form, [0, 0], 3) == [1, 2]


def test_threads_can_share_it(compiled: CompiledKnapsack) -> None:
    problems = [random_problem(np.random.default_rng(seed)) for seed in range(200)]
    alone = [compiled.best_sizes(*problem) for problem in problems]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda problem: compiled.best_sizes(*problem), problems)) == alone


@pytest.mark.parametrize(("value", "used"), [("1", False), ("0", True), ("", True)])
def test_the_environment_can_switch_it_off(
    compiled: CompiledKnapsack, monkeypatch: pytest.MonkeyPatch, value: str, *, used: bool
) -> None:
    assert compiled is not None
    monkeypatch.setenv("BFTRAIN_NO_COMPILED", value)
    assert (compiled_library.__wrapped__() is not None) == used
    assert (why_numpy() == ("BFTRAIN_NO_COMPILED is set", "unset BFTRAIN_NO_COMPILED")) != used


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of other sources, which are compiled at once."""
    folder = tmp_path / "compiled"
    folder.mkdir()
    (folder / "knapsack.h").write_text("int bftrain_best_sizes(void);\n")
    function = '__attribute__((visibility("default"))) int bftrain_best_sizes(void) { return 1; }'
    (folder / "knapsack.c").write_text(f'#include "knapsack.h"\n{function}\n')
    monkeypatch.setattr(library_file, "SOURCES", folder)
    return folder


def test_a_library_of_other_sources_is_never_used(
    sources: Path, compiled: CompiledKnapsack, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiled is not None
    before = library_file.compile_library()
    assert before == library_file.library_file()
    before.write_text("no library")
    assert compiled_library.__wrapped__() is None
    assert "cannot be loaded here" in why_numpy()[0]
    library_file.compile_library()  # once more
    assert compiled_library.__wrapped__() is not None
    (sources / "knapsack.h").write_text((sources / "knapsack.h").read_text() + "\n/* changed */\n")
    assert compiled_library.__wrapped__() is None
    assert why_numpy() == (
        "its C code is newer than the compiled library",
        "run pip install -e . in the checkout again",
    )
    monkeypatch.setenv("CC", "")  # as if there were none
    after = library_file.compile_library()
    assert after == library_file.library_file() != before
    assert list(sources.glob("*.so")) == [after]  # and nothing else is left
    assert compiled_library.__wrapped__() is not None


def test_inexact_flags_of_a_compiler_leave_the_arithmetic_of_the_process_alone(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sources.exists()
    monkeypatch.setenv("CC", f"{os.environ.get('CC', 'cc')} -ffast-math -funsafe-math-optimizations")
    library = library_file.compile_library()
    script = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(float(sys.argv[2]) / 2)"
    assert subprocess.check_output([sys.executable, "-c", script, library, "1e-310"], text=True) == "5e-311\n"


def test_a_compiler_that_fails_leaves_nothing(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(subprocess.CalledProcessError):
        library_file.compile_library()
    monkeypatch.setenv("CC", "there-is-no-such-compiler")
    with pytest.raises(FileNotFoundError):
        library_file.compile_library()
    assert {file.suffix for file in sources.iterdir()} == {".c", ".h"}
    assert compiled_library.__wrapped__() is None
    reason, fix = why_numpy()
    assert reason == "it has no compiled code"
    assert "pip install -v" in fix
