"""What a task's folder has on disk: the only place where tests read that format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bftrain_elastic.worker import checkpoint_file


def saved_step(folder: Path) -> int:
    """Return the step of the state in a task's folder; -1 if there is none."""
    step = checkpoint_file.step_of(folder)
    return -1 if step is None else step


def saved_tensors(folder: Path) -> list[Any]:
    """Return all tensors of the state in a task's folder, models before optimizers."""
    found = checkpoint_file.load(folder)
    assert found is not None, f"no state in {folder}"
    return list(found.tree.tensors.values())
