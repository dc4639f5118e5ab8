"""What workers printed is read and nothing else; what is odd is said once; what was harvested is kept by day."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bftrain import BadInput, NotFound, Run
from bftrain.live.model.task_record import LiveTaskRecord
from bftrain.live.run.operator_notices import OperatorNotices
from bftrain.live.tasks import task_logs
from tests.unit.core.samples import spec

DAY_S = 86_400.0


def record(folder: Path) -> LiveTaskRecord:
    return LiveTaskRecord(
        number=1, name="a", uid=1, user="ada", launcher="fake", spec=spec("a"), guessed=False,
        run=Run(argv=("run",), folder=str(folder)), submitted_s=0.0,
    )  # fmt: skip


def test_a_log_is_read_in_pieces_from_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_logs, "_CHUNK", 8)
    task = record(tmp_path)
    assert task_logs.log_files(task) == ()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "n1-0.log").write_text("0123456789abcdef")
    (tmp_path / "logs" / "folder").mkdir()
    assert [(one.name, one.size) for one in task_logs.log_files(task)] == [("n1-0.log", 16)]
    found = [task_logs.read_log(task, "n1-0.log", offset) for offset in (0, 8, 16, -4, -100)]
    assert found == [b"01234567", b"89abcdef", b"", b"cdef", b"01234567"]


@pytest.mark.parametrize("name", ["", ".", "..", "../secret", "/etc/passwd", "a\0b", "none.log", "link.log"])
def test_nothing_but_a_log_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "logs" / "link.log").symlink_to(tmp_path / "secret")
    with pytest.raises(NotFound, match="no log file is called"):
        task_logs.read_log(record(tmp_path), name, 0)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    os.mkfifo(tmp_path / "logs" / "pipe.log")
    with pytest.raises(BadInput, match="is no plain file"):
        task_logs.read_log(record(tmp_path), "pipe.log", 0)


def test_the_same_remark_is_said_once_and_counted() -> None:
    said: list[str] = []
    remarks = OperatorNotices(said.append)
    for at_s in (0.0, 1.0, 2.0):
        remarks.add("odd", at_s)
    remarks.add("other", 3.0)
    assert said == ["odd", "other"]
    assert [(one.text, one.times, one.time_s) for one in remarks.latest] == [("odd", 3, 2.0), ("other", 1, 3.0)]
    remarks.add("odd", 603.0)
    assert said == ["odd", "other", "odd"], "after a while it is said again"
    for number in range(60):
        remarks.add(f"remark {number}", 700.0)
    assert len(remarks.latest) == 50
    assert remarks.latest[-1].text == "remark 59"
