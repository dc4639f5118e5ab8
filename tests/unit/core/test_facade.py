"""What ``import bftrain`` offers, and what it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import bftrain

STUB = Path(bftrain.__file__).with_suffix(".pyi")
HOMES = {
    alias.name: str(line.module)
    for line in ast.parse(STUB.read_text()).body
    if isinstance(line, ast.ImportFrom)
    for alias in line.names
}


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def test_using_it_loads_neither_pandas_nor_scipy() -> None:
    code = (
        "import sys, bftrain; [getattr(bftrain, name) for name in bftrain.__all__];"
        "print([name for name in ('pandas', 'scipy', 'click', 'rich') if name in sys.modules])"
    )
    assert python(code) == "[]"


@pytest.mark.parametrize("name", HOMES)
def test_names_come_from_their_homes(name: str) -> None:
    assert getattr(bftrain, name) is getattr(import_module(HOMES[name]), name)


def test_a_star_import_gives_the_public_names() -> None:
    assert python("from bftrain import *; print(Harvester.__name__, replay.__name__)") == "Harvester replay"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'bftrain' has no attribute 'Harvster'"):
        bftrain.Harvster  # noqa: B018 - asking for it is the test
