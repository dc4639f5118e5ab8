"""Whether what a launcher needs is here, without importing it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bftrain import registry


def put(place: Path, monkeypatch: pytest.MonkeyPatch, package: str, version: str) -> Path:
    """Install a package there that breaks when it is imported."""
    (place / package).mkdir()
    (place / package / "__init__.py").write_text("raise RuntimeError('imported')")
    about = place / f"{package}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(place)
    monkeypatch.delitem(sys.modules, package, raising=False)
    return place / package


@pytest.mark.parametrize(
    ("metadata", "torch", "ok", "said"),
    [
        ('{"pytorch": "2.13.0"}', "2.13.0", True, "Horovod 0.28.1, torch 2.13.0"),
        ('{"pytorch": "2.13.0"}', "2.14.0", False, "was built for torch 2.13.0, and 2.14.0 is installed"),
        ('{"tensorflow": "2.2.0"}', "2.13.0", False, "was built without PyTorch"),
        ("no JSON", "2.13.0", False, "was built without PyTorch"),
        (None, "2.13.0", False, "was built without PyTorch"),
    ],
)
def test_horovod_fits_the_torch_that_is_here_or_is_to_be_built_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, metadata: str | None, torch: str, *, ok: bool, said: str
) -> None:
    put(tmp_path, monkeypatch, "torch", torch)
    package = put(tmp_path, monkeypatch, "horovod", "0.28.1")
    if metadata is not None:
        (package / "metadata.json").write_text(metadata)
    found = registry.load("launcher", "horovod").available()
    assert found.ok is ok
    assert said in (found.version if ok else found.reason)
    assert found.fix.startswith("make horovod") is not ok


def test_what_is_not_here_is_said_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "horovod", None)
    found = {name: registry.load("launcher", name).available() for name in ("native", "horovod", "process")}
    assert {name: one.ok for name, one in found.items() if one.ok} == {"process": True}
    assert "make horovod" in found["horovod"].fix
    assert "torch" in found["native"].fix
