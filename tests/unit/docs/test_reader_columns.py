"""What the page on readers says of columns, fields and presets is what the code reads."""

from __future__ import annotations

import inspect
import re

import pytest

from bftrain import registry
from bftrain.registry import BUILT_IN
from bftrain_datasets.job_tables.public_sets import PUBLIC_SETS, REAL
from tools.reader_columns import PAGE, READ, with_section

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_page_says_what_the_code_says() -> None:
    assert with_section(TEXT) == TEXT, "run tools/reader_columns.py"


def test_every_reader_is_there() -> None:
    assert set(READ) == set(BUILT_IN["reader"])


@pytest.mark.parametrize("name", READ)
def test_each_name_stands_in_its_reader(name: str) -> None:
    source = inspect.getsource(registry.load("reader", name)).lower()
    named = [each for item in READ[name][0] for each in re.findall("`([^`]+)`", item)]
    assert [each for each in named if each.lower() not in source] == []


def test_every_preset_is_documented_as_it_is() -> None:
    listed = re.findall(r"^\| (`[\w-]+` \| .*?) \| `bftrain import [^`]+` \|$", TEXT, re.MULTILINE)
    tried = {REAL: "rows of it"}
    known = [
        f"`{each.name}` | {each.about} | {each.source} | {tried.get(each.tried, 'its documented columns')}"
        for each in PUBLIC_SETS
    ]
    assert sorted(listed) == sorted(known)
