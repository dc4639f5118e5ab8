"""Comparing runs in rounds with each other, and with replays: what is held against each other, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bftrain
from bftrain import BadInput, ReplaySettings, compare, rounds, text_formats
from bftrain_replay.comparing.comparison import Comparison
from bftrain_replay.comparing.comparison_page import page
from tests.helpers.round_cases import gang
from tests.unit.replay.cases import InputSource, log_of, on_cluster, summary_of, write_replay, write_rounds

TASKS = [gang(f"t{number}", 9000.0, 1 + number % 2, 100.0 * number, user=f"u{number % 2}") for number in range(8)]
FOUR = {"": 4}
LOG = log_of((0.0, "abcd", ""), (20000.0, "", "b"), end_s=50000.0)


@pytest.fixture
def in_rounds(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that shares time in rounds and writes the folder of that name."""

    def made(name: str, *, nodes: Any = FOUR, form: str = "csv", **settings: Any) -> Path:  # noqa: ANN401 - as rounds() takes them
        settings = {"round_s": 60.0, **settings}
        log = "" if isinstance(nodes, dict) else nodes.sha256
        origin = {"log": "log.npz" if log else "", "log_sha256": log, "tasks": "jobs.csv"}
        (tmp_path / name).mkdir()
        write_rounds(rounds(nodes, TASKS, **settings), tmp_path / name, form=form, **origin)
        return tmp_path / name

    return made


@pytest.fixture
def replayed(tmp_path: Path) -> Callable[..., Path]:
    """The same for a replay on the cluster, or on a log."""

    def made(name: str, *, nodes: Any = FOUR, until_s: float | None = None, **settings: Any) -> Path:  # noqa: ANN401 - as for rounds
        given = ReplaySettings(**settings)
        done = (
            on_cluster(nodes, TASKS, given, until_s=until_s)
            if isinstance(nodes, dict)
            else bftrain.replay(nodes, TASKS, given)
        )
        write_replay(done, tmp_path / name, InputSource(log="log.npz", tasks="tasks.toml"))
        return tmp_path / name

    return made


def values(found: Comparison, name: str) -> tuple[float | None, ...]:
    return next(figure.amounts for figure in found.figures if figure.name == name)


def best(found: Comparison, name: str) -> list[str]:
    figure = next(figure for figure in found.figures if figure.name == name)
    return [found.labels[place] for place in figure.best]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_figures_of_rounds_are_those_of_their_summaries(in_rounds: Callable[..., Path], form: str) -> None:
    folders = [in_rounds(policy, policy=policy, form=form) for policy in ("fifo", "las")]
    found, known = compare(*folders), [summary_of(folder) for folder in folders]
    assert values(found, "time_to_finish_s.mean") == pytest.approx([each["completion_s"]["mean"] for each in known])
    assert values(found, "rho.p95") == pytest.approx([each["rho"]["p95"] for each in known])
    assert values(found, "coverage") == tuple(each["coverage"] for each in known)
    assert values(found, "responsiveness_s.mean") == tuple(each["responsiveness_s"]["mean"] for each in known)
    assert values(found, "preemptions") == tuple(each["preemptions"] for each in known)
    soonest = min(found.labels, key=dict(zip(found.labels, values(found, "time_to_finish_s.mean"), strict=True)).get)
    assert best(found, "time_to_finish_s.mean") == [soonest]
    assert dict(found.making.differs) == {"settings.policy": ("fifo", "las")}
    assert found.making.same["log"] == "cluster 4"
    names = {figure.name for figure in found.figures}
    assert not {"harvested", "efficiency", "rescales", "decide_ms.p50", "cost"} & names
    assert found.notes == ()


def test_rounds_and_a_replay_on_the_same_cluster(in_rounds: Callable[..., Path], replayed: Callable[..., Path]) -> None:
    folders = [in_rounds("las", policy="las"), replayed("exact")]
    found = compare(*folders)
    known = [summary_of(folder) for folder in folders]
    assert values(found, "time_to_finish_s.mean") == pytest.approx([each["completion_s"]["mean"] for each in known])
    assert values(found, "tasks_finished_by_all") == (8, 8)
    assert best(found, "time_to_finish_s.mean")
    assert values(found, "rescales")[0] is None
    assert values(found, "rounds")[1] is None
    assert found.making.differs["settings.policy"] == ("las", None)
    assert found.making.differs["settings.solver"] == (None, "exact")
    assert "settings.horizon_s" not in found.making.differs  # it was not set
    assert any("different rules (realistic, time shared in rounds)" in note for note in found.notes)
    assert {figure.name for figure in page(found).figures} >= {"finished", "used-2"}


def test_elastic_tasks_are_the_same_work_in_rounds(tmp_path: Path) -> None:
    import msgspec  # noqa: PLC0415 - for this test only

    elastic = [msgspec.structs.replace(task, min_nodes=1) for task in TASKS]
    done = on_cluster(FOUR, elastic, ReplaySettings())
    write_replay(done, tmp_path / "replay", InputSource(tasks="t.toml"))
    (tmp_path / "rounds").mkdir()
    write_rounds(rounds(FOUR, elastic, gang="max", round_s=60.0), tmp_path / "rounds")
    found = compare(tmp_path / "replay", tmp_path / "rounds")
    assert not any("different tasks" in note for note in found.notes)


def test_other_nodes_and_other_measured_tasks(in_rounds: Callable[..., Path], replayed: Callable[..., Path]) -> None:
    fifo = in_rounds("fifo")
    with pytest.raises(BadInput, match=r"they are of 2 different clusters"):
        compare(fifo, in_rounds("five", nodes={"": 5}))
    with pytest.raises(BadInput, match=r"they are of 2 different logs"):
        compare(fifo, replayed("log", nodes=LOG))
    assert compare(fifo, replayed("log again", nodes=LOG), force=True).forced
    found = compare(fifo, in_rounds("some", measure="2..5"))
    assert values(found, "time_to_finish_s.mean")
    assert best(found, "time_to_finish_s.mean") == []
    assert "their means are over different tasks (all, 2..5), and none is marked as best" in found.notes


def test_an_early_end_is_reported(in_rounds: Callable[..., Path]) -> None:
    found = compare(in_rounds("fifo"), in_rounds("flood", max_backlog_s=300.0))
    assert any(note.startswith("flood ended early (overload): its figures are not final") for note in found.notes)


def test_who_was_cut_off_earlier_is_not_held_against_the_others(
    in_rounds: Callable[..., Path], replayed: Callable[..., Path]
) -> None:
    replays = [replayed("all"), replayed("cut", until_s=4000.0)]
    shared = [in_rounds("all rounds"), in_rounds("cut rounds", until_s=4020.0)]
    for folders, until_s in ((replays, 4000.0), (shared, 4020.0)):
        found = compare(*folders)
        assert found.making.differs == {"settings.until_s": (None, until_s)}
        assert not any(figure.best for figure in found.figures if not figure.name.startswith("decide"))
        (said,) = (note for note in found.notes if note.endswith("none is marked as best"))
        assert f"({found.labels[0]}: no bound, {found.labels[1]}: {text_formats.duration(until_s)})" in said
    assert any("none is marked as best" in note for note in compare(shared[0], replays[1]).notes)


def test_times_to_end_that_no_replay_reached_and_equal_ones_hinder_nothing(replayed: Callable[..., Path]) -> None:
    late = compare(replayed("all"), replayed("late", until_s=1e7, max_tasks=1))
    assert late.making.differs["settings.until_s"] == (None, 1e7)
    assert best(late, "makespan_s") == ["all"]
    cut = compare(replayed("cut", until_s=4000.0), replayed("cut one", until_s=4000.0, max_tasks=1))
    assert best(cut, "harvested")
    assert cut.making.same["settings.until_s"] == 4000.0
