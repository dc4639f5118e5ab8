"""The compilation when a package is built: where the library goes, and what happens where it cannot be compiled."""

from __future__ import annotations

import runpy
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from bftrain_solvers.knapsack import library_file

HOOK = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "build_hook.py"))
COMPILED = Path("bftrain_solvers", "knapsack", "compiled")


class Warnings(list[str]):
    """What a build shows of its warnings."""

    display_warning = list.append


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with these sources only, and a compiler that makes a file at once."""
    root = tmp_path / 'a "check" out'
    shutil.copytree(
        library_file.SOURCES, root / "solvers" / COMPILED, ignore=shutil.ignore_patterns("*.so", ".compiling-*")
    )
    shutil.copy(str(library_file.__file__), root / "solvers" / COMPILED.parent)
    compiler = tmp_path / "my compiler"
    compiler.write_text('#!/bin/sh\numask 077\nwhile [ "$1" != -o ]; do shift; done\necho >"$2"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", f"'{compiler}' -O1")
    return root


def built(root: Path, version: str = "standard") -> tuple[Any, dict[str, Any], Warnings]:
    data: dict[str, Any] = {"pure_python": True, "force_include": {}}
    shown = Warnings()
    hook = HOOK["KnapsackBuildHook"](str(root), {}, None, None, str(root / "dist"), "wheel", shown)
    hook.initialize(version, data)
    return hook, data, shown


def test_a_wheel_is_compiled_outside_the_checkout(checkout: Path) -> None:
    before = sorted(checkout.rglob("*"))
    hook, data, shown = built(checkout)
    ((library, place),) = data["force_include"].items()
    assert sorted(checkout.rglob("*")) == before
    assert place == str(COMPILED / Path(library).name)
    assert data["tag"].startswith("py3-none-")
    assert stat.S_IMODE(Path(library).stat().st_mode) == stat.S_IMODE((library_file.SOURCES / "grid.c").stat().st_mode)
    hook.finalize("standard", data, "")
    assert (Path(library).exists(), shown) == (False, [])


def test_an_editable_installation_has_it_in_the_checkout(checkout: Path) -> None:
    _, data, shown = built(checkout, "editable")
    assert len(list((checkout / "solvers" / COMPILED).glob("knapsack-*.so"))) == 1
    assert (data, shown) == ({"pure_python": True, "force_include": {}}, [])


@pytest.mark.parametrize("compiler", ["there-is-no-such-compiler", "false", "cc 'unfinished"])
def test_without_a_compiler_that_works_the_package_is_pure_python(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    _, data, shown = built(checkout)
    assert data == {"pure_python": True, "force_include": {}}
    assert "exact will use numpy only" in shown[0]
