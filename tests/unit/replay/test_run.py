"""A run: the same settings, figures, tables and page in memory and read from its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import bftrain
from bftrain import BadInput, RoundSettings, UsageError
from tests.unit.replay.cases import log_of, page_of, task

LOG = log_of((0.0, "abcd", ""), (100.0, "", "b"), (120.0, "e", "c"), end_s=300.0)
TASKS = [
    task("x", work_samples=2500.0, start_cost_s=7.0, user="anna"),
    task("y", rate=(5.0, 9.0, 12.0), submit_s=50.0, user="12"),
    task("late", submit_s=1000.0),
]
GANGS = [task(name, rate=(10.0,), work_samples=900.0, user=name) for name in ("7", "b")]
JOBS = "; MaxProcs: 4\n" + "\n".join(
    f"{job} {submit} 0 100 2 -1 -1 2 120 -1 1 {user} 1 -1 1 -1 -1 -1" for job, submit, user in ((1, 0, 3), (2, 5, 4))
)


def replayed(_: Path) -> Any:  # noqa: ANN401 - a run
    return bftrain.replay(LOG, TASKS, baseline="equal-share", max_tasks=2)


def in_rounds(_: Path) -> Any:  # noqa: ANN401 - as above
    return bftrain.rounds({"": 1}, GANGS, RoundSettings(round_s=60.0), policy="las")


def scheduled(folder: Path) -> Any:  # noqa: ANN401 - as above
    (folder / "jobs.swf").write_text(JOBS)
    return bftrain.schedule(folder / "jobs.swf", policy="fcfs")


EVERY = pytest.mark.parametrize(
    ("made", "tables"),
    [
        (replayed, ("tasks", "decisions", "allocations", "over_time")),
        (in_rounds, ("tasks", "rounds", "over_time", "users")),
        (scheduled, ("jobs", "campaigns", "utilisation")),
    ],
)


@EVERY
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_folder_gives_what_memory_gave(
    made: Callable[[Path], Any], tables: tuple[str, ...], form: str, tmp_path: Path
) -> None:
    run = made(tmp_path)
    run.write(tmp_path / "out", tables=form)
    again = bftrain.load_run(tmp_path / "out")
    assert (again.metrics, again.settings, repr(again)) == (run.metrics, run.settings, repr(run))
    assert again.summary["inputs"] == run.summary["inputs"]
    for name in tables:
        pd.testing.assert_frame_equal(again.table(name), run.table(name))
    again.write(tmp_path / "again", tables=form)
    # The command that repeats it is not read back, and the names in allocations have the order of the rows
    differ = {"config.toml", "SHA256SUMS", "allocations.parquet"}
    for path in (tmp_path / "again").iterdir():
        if path.name not in differ:
            assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes(), path.name


def test_figures_are_numbers_by_their_names(tmp_path: Path) -> None:
    run = replayed(tmp_path)
    assert run.metrics["efficiency"] == run.result.efficiency
    assert run.metrics["completion_s.mean"] == run.result.task_figures.completion_s.mean
    assert run.metrics["harvest_node_h"] == pytest.approx(run.summary["headline"]["harvest_node_h"])
    assert in_rounds(tmp_path).metrics["rounds"] > 1
    assert scheduled(tmp_path).metrics["wait_s.mean"] == 0.0


def test_losses_and_useful_work_add_up_to_the_idle_node_time(tmp_path: Path) -> None:
    run = replayed(tmp_path)
    assert set(run.losses["kind"]) == {"unused", "lost"}
    whole = run.losses["node_h"].sum() + run.metrics["harvest_node_h"]
    assert whole == pytest.approx(run.metrics["idle_node_h"])


def test_what_a_run_does_not_have_is_named(tmp_path: Path) -> None:
    run = in_rounds(tmp_path)
    with pytest.raises(UsageError, match="a run in rounds has no table 'decisions'"):
        _ = run.decisions
    with pytest.raises(AttributeError, match="rounds_"):
        _ = run.rounds_
    run.write(tmp_path / "out")
    again = bftrain.load_run(tmp_path / "out")
    with pytest.raises(AttributeError, match="this run in rounds has no attribute 'engine'"):
        _ = again.engine
    with pytest.raises(BadInput, match="is not stored in the folder"):
        _ = again.result
    with pytest.raises(BadInput, match="there is no page for a schedule"):
        page_of(scheduled(tmp_path))
    with pytest.raises(BadInput, match="a schedule cannot be compared"):
        bftrain.compare(run, scheduled(tmp_path))


def test_runs_in_rounds_compare_in_memory_as_in_folders(tmp_path: Path) -> None:
    runs = [bftrain.rounds({"": 1}, GANGS, RoundSettings(round_s=60.0), policy=name) for name in ("las", "fifo")]
    for run, name in zip(runs, ("las", "fifo"), strict=True):
        run.write(tmp_path / name)
    one, other = bftrain.compare(*runs), bftrain.compare(tmp_path / "las", tmp_path / "fifo")
    assert one.labels == other.labels == ("las", "fifo")
    pd.testing.assert_frame_equal(one.frame(), other.frame())
