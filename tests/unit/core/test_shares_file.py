"""The shares file: weights, quotas and prices, and what is wrong in one is told with its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bftrain.errors import BftrainError
from bftrain.shares_file import load_shares
from bftrain.values.sharing import Entity, Inside

if TYPE_CHECKING:
    from pathlib import Path


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "shares.toml"
    path.write_text(text)
    return path


def test_users_have_a_weight_alone_or_a_table_and_kinds_a_price(tmp_path: Path) -> None:
    text = '[entities]\nann = 2\nbob = { weight = 0.5, inside = "fifo", nodes = 16, tasks = 4 }\n[prices]\nv100 = 2.5\n'
    found = load_shares(written(tmp_path, text))
    assert found.settings == {
        "entities": {"ann": Entity(weight=2.0), "bob": Entity(weight=0.5, inside=Inside.FIFO, nodes=16, tasks=4)},
        "prices": {"v100": 2.5},
    }


def test_a_table_that_is_not_there_leaves_the_settings_as_they_are(tmp_path: Path) -> None:
    assert set(load_shares(written(tmp_path, "[prices]\nv100 = 1\n")).settings) == {"prices"}
    assert load_shares(written(tmp_path, "")).settings == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[entities]\nann = 0\n", "must be above 0, not 0"),
        ("[entities]\nann = true\n", "Expected `object`, got `bool`"),
        ("[entities]\nann = { weigth = 2 }\n", "weigth"),
        ("[entities]\nann = { nodes = 0 }\n", "must be at least 1, not 0"),
        ("[entities]\nann = { inside = 'lifo' }\n", "lifo"),
        ("entities = 3\n", "Expected `object`, got `int`"),
        ("\n[users]\nann = 2\n", ":2: unknown key 'users'"),
        ("[prices]\nv100 = -1\n", "SharesFile.prices: must be a mapping from names to numbers above 0"),
        ("[entities\n", ":1: is not valid TOML"),
    ],
)
def test_what_is_wrong_in_one_is_named_with_its_file(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BftrainError) as refused:
        load_shares(path)
    assert str(refused.value).startswith(str(path))
    assert words in str(refused.value)
