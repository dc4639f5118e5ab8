"""What ``import bftrain`` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import bftrain
from bftrain import _HOME_OF, _HOMES, __all__


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


def test_every_public_name_is_there_and_they_are_sorted() -> None:
    for name in __all__:
        assert getattr(bftrain, name) is not None
    assert dir(bftrain) == sorted(__all__)
    ordered = sorted(name for name in __all__ if name != "__version__")
    assert [name for name in __all__ if name != "__version__"] == ordered
    assert set(_HOME_OF) | {"__version__"} == set(__all__)


@pytest.mark.parametrize("module", _HOMES)
def test_names_come_from_their_homes(module: str) -> None:
    __import__(module)
    for name in _HOMES[module]:
        assert getattr(bftrain, name) is getattr(sys.modules[module], name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'bftrain' has no attribute 'Harvster'"):
        bftrain.Harvster  # noqa: B018 - asking for it is the test
