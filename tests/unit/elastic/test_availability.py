"""Whether what a launcher needs is here, without importing it."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from bftrain import registry
from bftrain_elastic.errors import install_hint
from bftrain_elastic.manager import availability


def put(place: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> Path:
    """Put a package there that breaks when it is imported."""
    (place / package).mkdir()
    (place / package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(place)
    monkeypatch.delitem(sys.modules, package, raising=False)
    return place / package


def versions(monkeypatch: pytest.MonkeyPatch, **installed: str | None) -> None:
    def version(name: str) -> str:
        found = installed.get(name)
        if found is None:
            raise PackageNotFoundError(name)
        return found

    monkeypatch.setattr(availability, "version", version)


@pytest.mark.parametrize(
    ("metadata", "torch", "ok", "said"),
    [
        ('{"pytorch": "2.13.0+cpu"}', "2.13.0+cpu", True, "Horovod 0.28.1, torch 2.13.0+cpu"),
        (
            '{"pytorch": "2.13.0+cpu"}',
            "2.14.0+cpu",
            False,
            "Horovod 0.28.1 was built for torch 2.13.0+cpu, and 2.14.0+cpu is installed",
        ),
        (
            '{"pytorch": "2.13.0+cpu"}',
            None,
            False,
            "Horovod 0.28.1 was built for torch 2.13.0+cpu, and none is installed",
        ),
        ('{"tensorflow": "2.2.0"}', "2.13.0+cpu", False, "Horovod 0.28.1 was built without PyTorch"),
        ("no JSON", "2.13.0+cpu", False, "Horovod 0.28.1 was built without PyTorch"),
        (None, "2.13.0+cpu", False, "Horovod 0.28.1 was built without PyTorch"),
    ],
)
def test_horovod_fits_the_torch_that_is_here_or_is_to_be_built_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, metadata: str | None, torch: str | None, *, ok: bool, said: str
) -> None:
    package = put(tmp_path, monkeypatch, "horovod")
    if metadata is not None:
        (package / "metadata.json").write_text(metadata)
    versions(monkeypatch, horovod="0.28.1", torch=torch)
    found = availability.horovod()
    assert (found.ok, found.version if ok else found.reason) == (ok, said)
    assert found.fix.startswith("make horovod") is not ok


def test_what_is_not_here_is_said_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "find_spec", lambda _: None)
    assert availability.horovod().fix == "make horovod (in a checkout of bftrain)"
    assert availability.torch().fix == install_hint("torch")
    for name in ("native", "torchrun", "horovod"):
        assert not registry.load("launcher", name).available().ok
    assert registry.load("launcher", "process").available().ok


def test_torch_is_found_and_not_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put(tmp_path, monkeypatch, "torch")
    versions(monkeypatch, torch="2.13.0")
    assert availability.torch().version == "torch 2.13.0"
