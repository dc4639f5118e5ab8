"""What is tried on this machine leaves nothing behind, also if it cannot begin."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from bftrain_elastic.errors import BadJob
from bftrain_elastic.manager import launchers
from bftrain_elastic.tryout.try_script import ScriptTrial, TrialMessages
from tests.helpers.lifecycles import LauncherJob
from tests.helpers.local_stage import LocalStage


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(threading.enumerate())
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    yield
    assert list((tmp_path / "tmp").iterdir()) == []
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("make", [launchers.native, launchers.horovod])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.sh", b"set -e\n"),
        ("job", b"module load cuda\nmpirun ./a.out\n"),
        ("job.yaml", b"steps: [1, 2]\nname: it's\n"),
        ("run", b"#!/bin/bash -l\nmpirun ./a.out\n"),
        ("run.py", b"#!/usr/bin/env bash\n"),
        ("a.out", b"\x7fELF\x02\x01\x01\0"),
        ("picture.png", b"\x89PNG\0\0" * 100_000),
    ],
)
def test_what_is_not_python_is_rejected(
    make: launchers.LauncherFactory, name: str, content: bytes, tmp_path: Path
) -> None:
    script = tmp_path / name
    script.write_bytes(content)
    fix = f"use --launcher process {script} after chmod [+]x {script}"
    words = f"{script}: is no Python script, which the {make.name} launcher requires [(]{fix}[)]"
    with pytest.raises(BadJob, match=words), ScriptTrial(make, [str(script)], nodes=1):
        pass


@pytest.mark.parametrize(
    ("name", "content"),
    [("train", b"#!/usr/bin/env python3\n"), ("train", b"import os\n"), ("train.py", b"import\n"), ("absent.py", None)],
)
def test_python_by_any_name_passes(name: str, content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    LauncherJob(argv=(name,), folder="f", cwd=str(tmp_path)).require_python("native")


def test_only_a_folder_with_a_main_module_passes(tmp_path: Path) -> None:
    job = LauncherJob(argv=(str(tmp_path),), folder="f")
    with pytest.raises(BadJob, match="is no Python script"):
        job.require_python("native")
    (tmp_path / "__main__.py").touch()
    job.require_python("native")


def test_a_stage_whose_launcher_cannot_be_made() -> None:
    def cannot(*_: object) -> NoReturn:
        raise ValueError("no such launcher")

    with pytest.raises(ValueError, match="no such launcher"), LocalStage(cannot, nodes=("n1",)):
        pass


def test_a_condition_may_ask_a_thread_that_adds_a_message() -> None:
    messages = TrialMessages()

    def asks() -> bool:
        adding = threading.Thread(target=messages, args=({"type": "registered"},), daemon=True)
        adding.start()
        adding.join(10.0)
        return not adding.is_alive()

    assert messages.wait(asks, 30.0)
