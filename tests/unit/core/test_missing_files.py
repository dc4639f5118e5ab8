"""A missing file is a BftrainError that names the file, in every function of the API that reads one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import bftrain

READERS: dict[str, Callable[[str], object]] = {
    "log.npz": bftrain.load_log,
    "log.csv": bftrain.load_log,
    "log.parquet": bftrain.load_log,
    "tasks.toml": bftrain.load_tasks,
    "tasks.csv": bftrain.load_tasks,
    "sacct.txt": bftrain.import_logs,
    "jobs.trace": bftrain.import_workload,
    "jobs.swf": bftrain.schedule,
    "to-assess.npz": bftrain.assess,
    "to-replay.npz": lambda path: bftrain.replay(path, bftrain.generate_mix(2, 1)),
    "live.db": lambda path: bftrain.Journal.open(Path(path)),
    "folder": lambda path: bftrain.compare(path, f"{path}-2"),
}


@pytest.mark.parametrize("name", READERS)
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(bftrain.BftrainError, match=name) as raised:
        READERS[name](str(tmp_path / name))
    assert isinstance(raised.value, bftrain.BadInput)
