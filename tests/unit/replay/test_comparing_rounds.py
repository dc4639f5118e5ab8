"""Comparing runs in rounds with each other, and with replays: what is held against each other, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace

from bftrain import BadInput, EventLog, TaskSpec, compare, save_log, save_tasks
from tests.helpers.in_process import CommandLine
from tests.helpers.round_cases import gang
from tests.unit.replay.cases import figures_of, log_of, summary_of

Comparison: TypeAlias = Any  # what bftrain.compare() returns

TASKS = [gang(f"t{number}", 9000.0, 1 + number % 2, 100.0 * number, user=f"u{number % 2}") for number in range(8)]
LOG = log_of((0.0, "abcd", ""), (20000.0, "", "b"), end_s=50000.0)


@pytest.fixture
def replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Path]:
    """Return a function that replays on the cluster, or on a log, and writes the folder of that name."""
    command = CommandLine(monkeypatch, capfd)

    def made(name: str, *options: object, nodes: int | EventLog = 4, tasks: Sequence[TaskSpec] = TASKS) -> Path:
        save_tasks(tasks, tmp_path / "tasks.toml")
        where: tuple[object, ...] = ("--cluster", nodes)
        if isinstance(nodes, EventLog):
            save_log(nodes, tmp_path / "log.npz")
            where = (tmp_path / "log.npz",)
        kind = "rounds" if "--round" in options else "replay"
        ended = command(kind, *where, "--tasks", tmp_path / "tasks.toml", *options, "-o", tmp_path / name)
        assert ended.code == 0, ended.err
        return tmp_path / name

    return made


@pytest.fixture
def in_rounds(replayed: Callable[..., Path]) -> Callable[..., Path]:
    """Return the same, for time that is shared in rounds."""

    def made(name: str, *options: object, **more: Any) -> Path:  # noqa: ANN401 - as above
        return replayed(name, "--round", 60, *options, **more)

    return made


def values(found: Comparison, name: str) -> tuple[float | None, ...]:
    return next(figure.amounts for figure in found.figures if figure.name == name)


def best(found: Comparison, name: str) -> list[str]:
    figure = next(figure for figure in found.figures if figure.name == name)
    return [found.labels[place] for place in figure.best]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_figures_of_rounds_are_those_of_their_summaries(in_rounds: Callable[..., Path], form: str) -> None:
    folders = [in_rounds(policy, "--policy", policy, "--tables", form) for policy in ("fifo", "las")]
    found, known = compare(*folders), [summary_of(folder) for folder in folders]
    assert values(found, "time_to_finish_s.mean") == pytest.approx([each["completion_s"]["mean"] for each in known])
    assert values(found, "rho.p95") == pytest.approx([each["rho"]["p95"] for each in known])
    assert values(found, "coverage") == tuple(each["coverage"] for each in known)
    assert values(found, "responsiveness_s.mean") == tuple(each["responsiveness_s"]["mean"] for each in known)
    assert values(found, "preemptions") == tuple(each["preemptions"] for each in known)
    soonest = min(found.labels, key=dict(zip(found.labels, values(found, "time_to_finish_s.mean"), strict=True)).get)
    assert best(found, "time_to_finish_s.mean") == [soonest]
    assert dict(found.settings.differs) == {"settings.policy": ("fifo", "las")}
    assert found.settings.same["log"] == "cluster 4"
    names = {figure.name for figure in found.figures}
    assert not {"harvested", "efficiency", "rescales", "decide_ms.p50", "cost"} & names
    assert found.notes == ()


def test_rounds_and_a_replay_on_the_same_cluster(
    in_rounds: Callable[..., Path], replayed: Callable[..., Path], tmp_path: Path
) -> None:
    folders = [in_rounds("las", "--policy", "las"), replayed("exact")]
    found = compare(*folders)
    known = [summary_of(folder) for folder in folders]
    assert values(found, "time_to_finish_s.mean") == pytest.approx([each["completion_s"]["mean"] for each in known])
    assert values(found, "tasks_finished_by_all") == (8, 8)
    assert best(found, "time_to_finish_s.mean")
    assert values(found, "rescales")[0] is None
    assert values(found, "rounds")[1] is None
    assert found.settings.differs["settings.policy"] == ("las", None)
    assert found.settings.differs["settings.solver"] == (None, "exact")
    assert "settings.horizon_s" not in found.settings.differs  # it was not set
    assert any("different rules (realistic, time shared in rounds)" in note for note in found.notes)
    found.write(tmp_path / "page.html")
    assert set(figures_of((tmp_path / "page.html").read_text())) >= {"finished", "used-2"}


def test_elastic_tasks_are_the_same_work_in_rounds(
    in_rounds: Callable[..., Path], replayed: Callable[..., Path]
) -> None:
    elastic = [replace(task, min_nodes=1) for task in TASKS]
    found = compare(replayed("replay", tasks=elastic), in_rounds("rounds", "--gang", "max", tasks=elastic))
    assert not any("different tasks" in note for note in found.notes)


def test_other_nodes_and_other_measured_tasks(in_rounds: Callable[..., Path], replayed: Callable[..., Path]) -> None:
    fifo = in_rounds("fifo")
    with pytest.raises(BadInput, match=r"they are of 2 different clusters"):
        compare(fifo, in_rounds("five", nodes=5))
    with pytest.raises(BadInput, match=r"they are of 2 different logs"):
        compare(fifo, replayed("log", nodes=LOG))
    assert compare(fifo, replayed("log again", nodes=LOG), force=True).forced
    found = compare(fifo, in_rounds("some", "--set", "measure=2:5"))
    assert values(found, "time_to_finish_s.mean")
    assert best(found, "time_to_finish_s.mean") == []
    assert "their means are over different tasks (all, 2:5), and none is marked as best" in found.notes


def test_an_early_end_is_reported(in_rounds: Callable[..., Path]) -> None:
    found = compare(in_rounds("fifo"), in_rounds("flood", "--max-backlog", 300))
    assert any(note.startswith("flood ended early (overload): its figures are not final") for note in found.notes)


def test_who_was_cut_off_earlier_is_not_held_against_the_others(
    in_rounds: Callable[..., Path], replayed: Callable[..., Path]
) -> None:
    replays = [replayed("all"), replayed("cut", "--until", 4000)]
    shared = [in_rounds("all rounds"), in_rounds("cut rounds", "--until", 4020)]
    for folders, until_s, words in ((replays, 4000.0, "66.7 min"), (shared, 4020.0, "67 min")):
        found = compare(*folders)
        assert found.settings.differs == {"settings.until_s": (None, until_s)}
        assert not any(figure.best for figure in found.figures if not figure.name.startswith("decide"))
        (said,) = (note for note in found.notes if note.endswith("none is marked as best"))
        assert f"({found.labels[0]}: no bound, {found.labels[1]}: {words})" in said
    assert any("none is marked as best" in note for note in compare(shared[0], replays[1]).notes)


def test_times_to_end_that_no_replay_reached_and_equal_ones_hinder_nothing(replayed: Callable[..., Path]) -> None:
    late = compare(replayed("all"), replayed("late", "--until", 1e7, "--max-tasks", 1))
    assert late.settings.differs["settings.until_s"] == (None, 1e7)
    assert best(late, "makespan_s") == ["all"]
    cut = compare(replayed("cut", "--until", 4000), replayed("cut one", "--until", 4000, "--max-tasks", 1))
    assert best(cut, "harvested")
    assert cut.settings.same["settings.until_s"] == 4000.0
