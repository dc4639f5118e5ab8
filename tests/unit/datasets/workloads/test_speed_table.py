"""Throughput tables: keys are text, rates are speeds, and anything else is refused with its place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from bftrain import BadInput, UnknownName
from bftrain_datasets.workloads import speed_table
from bftrain_datasets.workloads.speed_table import load_speed_table
from tests.helpers.workloads import TABLE, table


def test_a_table_has_rates_by_kind_model_and_gang(tmp_path: Path) -> None:
    found = load_speed_table(table(tmp_path))
    assert {kind: {model: dict(gangs) for model, gangs in models.items()} for kind, models in found.rates.items()} == {
        "v100": {"Net (batch size 16)": {1: 10.0, 2: 19.0, 4: 15.0, 8: 60.5}, "Other": {1: 3.0}},
        "k80": {"Net (batch size 16)": {1: 0.0, 2: 4.0, 4: 6.0}, "Other": {1: 0.0}},
    }
    assert found.source.name == "speeds.json"


def test_a_packed_table_is_the_same(tmp_path: Path) -> None:
    plain = load_speed_table(table(tmp_path))
    path = tmp_path / "speeds.json.gz"
    path.write_bytes(gzip.compress(json.dumps(TABLE).encode()))
    assert load_speed_table(path).rates == plain.rates


@pytest.mark.parametrize(
    ("key", "model", "gang"),
    [
        ("('Net', 4)", "Net", 4),
        ('("It\'s a Net", 2)', "It's a Net", 2),
        ("('Net (batch size 8)', 1)", "Net (batch size 8)", 1),
        ("Net (scale factor 2)", "Net", 2),
        ("Net (batch size 8) (scale factor 4)", "Net (batch size 8)", 4),
        ("Net (batch size 8)", "Net (batch size 8)", 1),
        ("(__import__('os').abort(), 1)", "(__import__('os').abort(), 1)", 1),  # text, and nothing is done with it
    ],
)
def test_keys_of_new_and_older_tables(tmp_path: Path, key: str, model: str, gang: int) -> None:
    found = load_speed_table(table(tmp_path, {"v100": {key: {"null": 2}}}))
    assert found.rates["v100"] == {model: {gang: 2.0}}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "speeds.json: not JSON"),
        ("[" * 100_000, "speeds.json: not JSON"),
        ([], "speeds.json: must be an object, not \\[\\]"),
        ({}, "speeds.json: has no node kind"),
        ({"v100": 3}, "speeds.json: v100: must be an object, not 3"),
        ({"v100": {"('A', 1)": 3}}, r"speeds.json: v100: \('A', 1\): must be an object"),
        ({"v100": {"('A', 1)": {}}}, r"v100: \('A', 1\): null: None is not a speed .write steps/s, or 0"),
        ({"v100": {"('A', 1)": {"null": -1}}}, "null: -1 is not a speed"),
        ({"v100": {"('A', 1)": {"null": True}}}, "null: True is not a speed"),
        ({"v100": {"('A', 1)": {"null": "9"}}}, "null: '9' is not a speed"),
        ('{"v100": {"A": {"null": NaN}}}', "null: nan is not a speed"),
        ('{"v100": {"A": {"null": 1e999}}}', "null: inf is not a speed"),
        (f'{{"v100": {{"A": {{"null": 1{"0" * 400}}}}}}}', "null: 1000.* is not a speed"),
        ({"v100": {"('A', 0)": {"null": 1}}}, "has no model with a gang of at least 1"),
        ({"v100": {"": {"null": 1}}}, "has no model"),
        ({"v100": {"('A', 1)": {"null": 1}, "A": {"null": 2}}}, "the gang 1 of 'A' occurs twice"),
    ],
)
def test_what_is_no_table_is_refused_with_its_place(tmp_path: Path, content: object, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        load_speed_table(table(tmp_path, content))


def test_a_table_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_table, "LARGEST_TEXT_BYTES", 10)
    with pytest.raises(BadInput, match="too large for a throughput table"):
        load_speed_table(table(tmp_path))


def test_the_kind_of_node_is_the_one_asked_for_the_only_one_or_the_usual_one(tmp_path: Path) -> None:
    rows = {"A": {"null": 1}}
    both = load_speed_table(table(tmp_path))
    assert (both.kind("k80"), both.kind(None)) == ("k80", "v100")
    assert load_speed_table(table(tmp_path, {"t4": rows})).kind(None) == "t4"
    several = load_speed_table(table(tmp_path, {"t4": rows, "a100": rows}))
    with pytest.raises(BadInput, match=r"has speeds of several kinds of nodes: t4, a100 .select one by --node-kind"):
        several.kind(None)
    with pytest.raises(UnknownName, match=r"speeds.json: no kind of node is called 'a10' .did you mean 'a100'"):
        several.kind("a10")
