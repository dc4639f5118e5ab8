"""From a set of AdaptDL to a replay by goodput in two commands; and goodput beside Pollux's published rule."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.in_process import CommandLine
from tests.helpers.pollux import PolluxRule, mean_completion_h, models, replayed, tasks_of
from tests.helpers.site_data import site_data

# 2 and 4 GPUs: a sample takes 10 ms on a GPU, and a step 100 ms more for any batch, on 4 GPUs 200 ms
SET = """num_nodes,num_replicas,local_bsz,step_time,sync_time
1,2,10,0.2,0.1
1,2,40,0.5,0.1
1,4,10,0.3,0.2
1,4,40,0.6,0.2
"""


def test_two_commands_from_a_set_to_a_replay_by_goodput(bftrain: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "adaptdl_toy_scalability.csv"
    path.write_text(SET)
    tasks, out = tmp_path / "t.toml", tmp_path / "out"
    made = bftrain(
        *("tasks", "generate", "--profiles", path, "--noise-scale", "600", "--count", "2", "--work", "1e5", "-o", tasks)
    )
    assert made.code == 0, made.err
    done = bftrain("replay", "--cluster", "4", "--tasks", tasks, "--objective", "goodput", "-o", out)
    assert done.code == 0, done.err
    rows = list(csv.DictReader((out / "tasks.csv").read_text().splitlines()))
    # On two GPUs 100 ms are as long as computing 20 samples: sqrt(600 * 20) = 110, and the largest is 160; on four 80
    assert {row["state"] for row in rows} == {"finished"}
    assert all(109.0 <= float(row["mean_batch"]) <= 160.0 for row in rows)
    assert all(float(row["mean_goodput"]) > 0.0 for row in rows)


def test_profiles_show_batches_where_the_noise_is_given(bftrain: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "adaptdl_toy_scalability.csv"
    path.write_text(SET)
    plain, shown = (bftrain("tasks", "profiles", path, *words) for words in ((), ("--noise-scale", "toy=600")))
    assert "noise" not in plain.out
    assert "10..160" in shown.out
    assert "fixed share" in " ".join(shown.out.split())
    (record,) = json.loads(bftrain("tasks", "profiles", path, "--noise-scale", "600", "--json").out)
    assert record["batch"] == {
        "initial": 10, "noise_scale": 600.0, "largest": 160, "per_node": 40, "fixed_share": pytest.approx(0.2),
    }  # fmt: skip
    saved = tmp_path / "toy.toml"
    bftrain("tasks", "profiles", path, "--noise-scale", "600", "-o", saved)
    (again,) = json.loads(bftrain("tasks", "profiles", saved, "--json").out)
    assert again["batch"] == record["batch"]
    wrong = bftrain("tasks", "profiles", path, "--noise-scale", "toy=much")
    assert (wrong.code, "is no noise scale; write 2000, or bert=150,imagenet=8000" in wrong.err) == (2, True)


def test_goodput_is_no_slower_than_polluxs_published_rule() -> None:
    known = models(site_data("profiles"))
    cases = [tasks_of(known, seed, 16, hours=0.0) for seed in range(2)]
    ours = [mean_completion_h(replayed(tasks, 16, objective="goodput")) for tasks in cases]
    rule = [mean_completion_h(replayed(tasks, 16, objective="goodput", solver=PolluxRule())) for tasks in cases]
    assert np.mean(ours) < np.mean(rule)


def test_profiles_are_completed_from_other_models(bftrain: CommandLine, tmp_path: Path) -> None:
    few, others, full = tmp_path / "few.toml", tmp_path / "others.toml", tmp_path / "full.toml"
    few.write_text('[[profile]]\nname = "new"\nnodes = [1, 4]\nrate = [100.0, 380.0]\n')
    bftrain("tasks", "profiles", "-o", others)
    done = bftrain("tasks", "profiles", few, "--complete-from", others, "-o", full)
    assert done.code == 0, done.err
    (record,) = json.loads(bftrain("tasks", "profiles", full, "--json").out)
    assert record["curve"]["nodes"] == [1, 2, 4, 8, 16, 32, 64]
    assert (record["curve"]["rate"][0], record["curve"]["rate"][2]) == (100.0, 380.0)
    few.write_text('[[profile]]\nname = "new"\nnodes = [3]\nrate = [100.0]\n')
    wrong = bftrain("tasks", "profiles", few, "--complete-from", others)
    assert wrong.code == 3
    assert "measured at no size of the models to complete it from" in wrong.err
    assert "measure it at one of 1, 2, 4" in wrong.err
