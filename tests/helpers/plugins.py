"""Install a package with plug-ins for one test, as pip would."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, module: str, code: str, parts: Mapping[str, str]) -> None:
    """Write a module and its entry points into ``folder`` and put it on the path.

    ``parts``: ``PORT.NAME`` -> what the module calls it; an empty name is the module itself, and MODULE:NAME another.
    """
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    package = module.replace("_", "-")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = []
    for part, name in parts.items():
        port, _, entry = part.partition(".")
        target = name if ":" in name else f"{module}:{name}".rstrip(":")
        lines += [f"[bftrain.{port}]", f"{entry} = {target}"]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, module, raising=False)
