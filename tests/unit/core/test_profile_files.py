"""Profile files are read back as they were saved, and what is wrong in one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import BftrainError, SpeedCurve
from bftrain.taskfiles.profile_files import load_profiles, save_profiles
from bftrain.taskfiles.records import Profile, profiles

MEASURED = Profile(
    name="my cnn",
    curve=SpeedCurve(nodes=(1, 2), rate=(320.25, 1 / 3)),
    grow_cost_s=0.06,
    shrink_cost_s=0.0,
    start_cost_s=1.5,
    source='bftrain "train"',
)
WHOLE = '[[profile]]\nname = "a"\nnodes = [1, 2]\nrate = [1.0, 2.0]\n'


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    every = (MEASURED, *profiles().values())
    save_profiles(every, path)
    assert load_profiles(path) == every
    save_profiles([MEASURED], path)  # its own file is replaced
    assert load_profiles(path) == (MEASURED,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must hold \\[\\[profile\\]\\] tables only"),
        (WHOLE + "[other]\na = 1\n", "must hold \\[\\[profile\\]\\] tables only"),
        (WHOLE + WHOLE, "'a' occurs twice"),
        (WHOLE.replace('"a"', "3"), "profile 1: has no name"),
        (WHOLE + "speed = 3\n", "no key of a profile is called 'speed'"),
        (WHOLE + "grow_cost_s = -1\n", r"profile 1 'a': grow_cost_s: -1 is not a number of seconds"),
        (WHOLE.replace("[1, 2]", "[2, 1]"), "nodes: must rise strictly"),
        (WHOLE.replace("rate = [1.0, 2.0]\n", ""), "must have nodes and rate"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BftrainError, match=says):
        load_profiles(path)


def test_a_file_of_others_and_another_ending_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("a = 1\n", encoding="utf-8")
    with pytest.raises(BftrainError, match="is not a profile file that bftrain wrote"):
        save_profiles([MEASURED], tmp_path / "mine.toml")
    with pytest.raises(BftrainError, match=r"use the suffix \.toml"):
        save_profiles([MEASURED], tmp_path / "p.csv")
