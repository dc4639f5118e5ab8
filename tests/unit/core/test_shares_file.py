"""The shares file: weights, quotas and prices, and what is wrong in one is told with its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bftrain.config import Settings
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
        ("[entities]\nann = 0\n", ":2: entities.ann: must be above 0, not 0 (write NAME = 2, or NAME = { weight = 2, "),
        ("[entities]\nann = true\n", ":2: entities.ann: must be a weight or a table, not True (write NAME"),
        ("[entities]\nann = { weigth = 2 }\n", ":2: entities.ann: unknown key 'weigth' (did you mean 'weight'?)"),
        ("[entities]\nbob = 1\nann = { nodes = 0 }\n", ":3: entities.ann.nodes: must be at least 1, not 0 (write"),
        ("[entities.ann]\nnodes = 1\ntasks = 1.5\n", ":3: entities.ann.tasks: must be a whole number, not 1.5"),
        ("[entities]\nann = { inside = 'lifo' }\n", ":2: entities.ann.inside: must be one of fair, fifo, not 'lifo'"),
        ("[entities]\nann.weight = 'much'\n", ":2: entities.ann.weight: must be a finite number, not 'much'"),
        ("entities = 3\n", ":1: entities: must be a table, not 3 (write NAME = 2"),
        ("\n[users]\nann = 2\n", ":2: unknown key 'users' (known: entities, prices)"),
        ("[prices]\nk80 = 1\nv100 = -1\n", ":3: prices.v100: must be a number above 0, not -1 (write KIND = 2.5)"),
        ("[prices]\nv100 = 'dear'\n", ":2: prices.v100: must be a number above 0, not 'dear'"),
        ("[prices]\nv100 = true\n", ":2: prices.v100: must be a number above 0, not True"),
        ("[prices]\n'' = 1\n", "a kind has a name (write KIND = 2.5)"),
        ("[entities\n", ":1: is not valid TOML"),
    ],
)
def test_what_is_wrong_in_one_is_named_with_its_file_line_and_key(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BftrainError) as refused:
        load_shares(path)
    assert str(refused.value).startswith(str(path))
    assert words in str(refused.value)


def test_a_wrong_price_in_a_configuration_is_named_too() -> None:
    with pytest.raises(BftrainError, match=r"Settings\.prices: 'v100' must be a finite number above 0, not -1"):
        Settings(prices={"k80": 1.0, "v100": -1})
