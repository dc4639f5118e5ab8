"""What several of these tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrain import registry
from tests.helpers.launcher_conformance import LocalStage
from tests.helpers.one_node import OneNode
from tests.helpers.stages import NODES


@pytest.fixture
def one_node(tmp_path: Path) -> Iterator[OneNode]:
    """Yield a node on which an agent can be started, and the manager's side of it."""
    running = OneNode(tmp_path)
    yield running
    running.close()


@pytest.fixture
def no_torch(tmp_path: Path) -> str:
    """Return a PYTHONPATH with which agents import no torch: scripts that need none start immediately."""
    folder = tmp_path / "no-torch"
    folder.mkdir()
    (folder / "torch.py").write_text("raise ImportError('these scripts need none')\n")
    return str(folder)


@pytest.fixture(scope="session")
def torch_stage() -> Iterator[LocalStage]:
    """Yield four agents that import torch once for all tests of this process; see :func:`launched`."""
    with LocalStage(registry.load("launcher", "native"), nodes=NODES) as running:
        yield running
