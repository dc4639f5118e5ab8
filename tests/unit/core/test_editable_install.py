"""An editable install offers the five packages and nothing else: no folder of the checkout becomes a package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def found(name: str, folder: Path) -> str:
    """Return where a fresh Python in ``folder`` finds a package."""
    code = (
        f"import importlib.util as u; s = u.find_spec({name!r}); print(list(s.submodule_search_locations) if s else '')"
    )
    env = {"PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("name", ["datasets", "tests", "docs", "tools", "examples", "solvers", "replay", "elastic"])
def test_folders_of_the_checkout_are_no_packages(tmp_path: Path, name: str) -> None:
    assert str(ROOT) not in found(name, tmp_path)


@pytest.mark.parametrize(
    "name", ["bftrain", "bftrain_solvers", "bftrain_replay", "bftrain_datasets", "bftrain_elastic"]
)
def test_packages_are_found_anywhere(tmp_path: Path, name: str) -> None:
    assert f"{name}'" in found(name, tmp_path)
