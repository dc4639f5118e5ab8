"""Mixes of models: the figures are those of plain replays, and the models that scale come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import bftrain
from bftrain import BadInput, EventLog, ReplaySettings, SpeedCurve, generate_log
from bftrain.taskfiles.profile_files import save_profiles
from bftrain.taskfiles.records import Profile, profiles
from bftrain_replay.assessing.best_mix import best_mixes, models_of
from bftrain_replay.assessing.replayed_sample import ReplayedSample
from bftrain_replay.assessing.what_if import MixRow
from bftrain_replay.assessing.what_if_replays import InputFiles
from bftrain_replay.results.headline import harvest_node_h
from bftrain_replay.sweeping.run_point import work
from bftrain_replay.sweeping.sweep_runs import PassOutcome, SweepPass
from tests.unit.replay.assessing.site_logs import site_log

LOG = generate_log(32, 1.0, 5)
SETTINGS = ReplaySettings(max_tasks=6)


def model(name: str, *rates: float, cost_s: float = 5.0) -> Profile:
    curve = SpeedCurve(nodes=tuple(2**place for place in range(len(rates))), rate=rates)
    return Profile(
        name=name, curve=curve, grow_cost_s=cost_s, shrink_cost_s=cost_s, start_cost_s=9.0, source="the test"
    )


# Samples a second say nothing about which does the most: the fastest one hardly scales
MODELS = {
    each.name: each
    for each in (model("fast", 900, 1000, 1100), model("even", 7, 14, 28), model("middling", 50, 90, 160))
}


def rows(
    folder: Path, models: Mapping[str, Profile] = MODELS, settings: ReplaySettings = SETTINGS, log: EventLog = LOG
) -> list[MixRow]:
    def run(_table: str, passes: Sequence[SweepPass]) -> dict[str, PassOutcome]:
        return {
            job.id: work(job, lambda: log, lambda: bftrain.load_tasks(Path(job.tasks.path)), lambda _: True)  # noqa: B023 - done at once
            for job in passes
        }

    sample = ReplayedSample.of(log)
    files = InputFiles.of(sample, folder / "log.npz", None, settings, folder)
    return list(best_mixes(sample, settings, models, files, run))


@pytest.mark.parametrize("name", ["generated", "summit", "ub-micro"])
def test_each_row_is_a_plain_replay_of_endless_tasks(name: str, tmp_path: Path) -> None:
    log = LOG if name == "generated" else site_log(name)
    found = {row.models: row for row in rows(tmp_path, log=log)}
    assert set(found) == {("fast",), ("even",), ("middling",), ("even", "middling"), ("even", "middling", "fast")}
    for each in MODELS.values():
        row = found[each.name,]
        nodes, of_one = each.curve.nodes, each.curve.rate[0]  # equal plans may be chosen otherwise in other units
        tasks = [
            bftrain.TaskSpec(
                name=f"t{number}",
                curve=SpeedCurve(nodes=nodes, rate=tuple(rate / of_one for rate in each.curve.rate)),
                min_nodes=1,
                max_nodes=4,
                start_cost_s=each.start_cost_s or 0.0,
                grow_cost_s=each.grow_cost_s,
                shrink_cost_s=each.shrink_cost_s,
            )
            for number in range(SETTINGS.max_tasks)
        ]
        done = bftrain.replay(log, tasks, max_tasks=SETTINGS.max_tasks)
        weeks = log.span_s / 604_800.0
        hours = done.result.harvested_samples / 3600.0
        assert row.work.median == pytest.approx(hours / weeks, rel=0.1)  # the median of resamples of days
        assert row.scaling == pytest.approx(hours / harvest_node_h(done.result.summary()), rel=1e-3)


def test_models_that_scale_come_first_and_not_those_with_most_samples(tmp_path: Path) -> None:
    found = rows(tmp_path)
    assert [row.models for row in found if len(row.models) == 1] == [("even",), ("middling",), ("fast",)]
    assert [row.work.median for row in found] == sorted((row.work.median for row in found), reverse=True)
    assert found[-1].models == ("fast",)
    assert found[-1].scaling < 0.9 < found[0].scaling <= 1.0 + 1e-9


def test_a_mix_needs_a_task_of_each_model(tmp_path: Path) -> None:
    assert {len(row.models) for row in rows(tmp_path, settings=ReplaySettings(max_tasks=2))} == {1, 2}


def test_an_interrupted_table_is_left_out(tmp_path: Path) -> None:
    sample = ReplayedSample.of(LOG)
    files = InputFiles.of(sample, tmp_path / "log.npz", None, SETTINGS, tmp_path)
    assert best_mixes(sample, SETTINGS, MODELS, files, lambda *_: None) == ()


def test_models_come_from_files_and_are_not_too_many(tmp_path: Path) -> None:
    assert models_of([]) == dict(profiles())
    save_profiles(MODELS.values(), tmp_path / "own.toml")
    assert list(models_of([tmp_path / "own.toml"])) == list(MODELS)
    save_profiles([model(f"m{number}", 1, 2) for number in range(13)], tmp_path / "many.toml")
    with pytest.raises(BadInput, match=r"13 models are too many \(give 12 at most"):
        models_of([tmp_path / "many.toml"])
    with pytest.raises(BadInput, match="none: has no speed above 0"):
        rows(tmp_path, {"none": model("none", 0.0, 0.0)})
