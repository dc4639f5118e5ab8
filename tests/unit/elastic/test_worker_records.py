"""What agents remember of their workers."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bftrain_elastic.agent import worker_records
from bftrain_elastic.agent.worker_records import EndedWorkers, WorkerRecord, out_of_memory_kills
from bftrain_elastic.manager.task_lifecycles import LeftWorker
from bftrain_elastic.wire.agent_messages import SpawnWorker
from bftrain_elastic.wire.messages import LINE_LIMIT, encode


def order(folder: Path, worker: str = "t/n1/0/1-1", task: str = "t", slot: int = 0, **more: Any) -> SpawnWorker:  # noqa: ANN401 - its other fields
    log = str(folder / "log")
    return SpawnWorker(worker=worker, task=task, argv=("s.py",), env={}, cwd="/", log=log, slot=slot, **more)


def test_a_worker_is_reported_to_the_next_manager_with_all_that_it_said(tmp_path: Path) -> None:
    worker = WorkerRecord(order(tmp_path, place={"generation": 2, "rank": 1, "workers": 3}))
    known = LeftWorker.read(worker.summary())
    assert (known.generation, known.rank, known.workers, known.step, known.report) == (2, 1, 3, -1, None)
    report = {"type": "report", "t": 1.0, "step": 5, "size": 1, "samples": 8, "loss": 0.5, "total": 40, "since": 0}
    worker.record_message(report | {"nan": False, "restarted": False})
    worker.record_message({"type": "ready", "step": 6, "generation": 2, "store": ["h", 1], "reason": ""})
    known = LeftWorker.read(worker.summary())
    assert known.report == report | {"nan": False, "restarted": False}
    assert known.ready is not None
    assert known.step == 6
    worker.record_order({"type": "go", "generation": 3, "rank": 0, "workers": 2, "size": 2, "store": ["h", 1]})
    worker.record_message({"type": "done", "step": 9})
    known = LeftWorker.read(worker.summary())
    assert (known.generation, known.rank, known.workers, known.step) == (3, 0, 2, 9)
    assert known.ready is None
    assert known.done
    assert worker.ended(0) == {"code": 0, "tail": "", "finished": True, "stopped": False}


def test_what_a_worker_said_of_its_end_is_reported(tmp_path: Path) -> None:
    worker = WorkerRecord(order(tmp_path), 4)
    (tmp_path / "log").write_text("old\nlast words\n")
    worker.record_message({"type": "stopped", "step": 3})
    assert worker.ended(0) == {"code": 0, "tail": "last words\n", "finished": False, "stopped": True}


@pytest.mark.parametrize(("condemned", "code", "named"), [(False, -9, True), (True, -9, False), (False, 1, False)])
def test_a_kill_of_the_kernel_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    condemned: bool,  # noqa: FBT001 - a parameter of the test
    code: int,
    named: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    counts = [3, 4]
    monkeypatch.setattr(worker_records, "out_of_memory_kills", lambda: counts[-1])
    worker = WorkerRecord(order(tmp_path))
    worker.oom_kills, worker.kill_ordered = counts[0], condemned
    (tmp_path / "log").write_text("loading\n")
    line = "bftrain: the kernel's out-of-memory killer was at work on this node\n"
    assert worker.ended(code)["tail"] == "loading\n" + (line if named else "")


@pytest.mark.parametrize(("free", "code", "named"), [(0, 1, True), (1000, 1, False), (0, 0, False), (0, -15, False)])
def test_a_full_disk_is_named_as_the_last_words_are_not_in_the_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    code: int,
    named: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    disk = SimpleNamespace(f_bavail=free, f_bfree=free, f_frsize=4096)
    monkeypatch.setattr(worker_records.os, "statvfs", lambda _: disk)
    worker = WorkerRecord(order(tmp_path))
    (tmp_path / "log").write_text("step 3\n")
    line = f"bftrain: no space is left in {tmp_path}\n"
    assert worker.ended(code)["tail"] == "step 3\n" + (line if named else "")


def test_the_kernel_is_asked_how_many_it_killed() -> None:
    if "oom_kill " in Path("/proc/vmstat").read_text():
        assert out_of_memory_kills() >= 0


def ended(folder: Path, *names: str, task: str = "t") -> EndedWorkers:
    found = EndedWorkers()
    for slot, name in enumerate(names):
        worker = WorkerRecord(order(folder, name, task, slot))
        found.add(worker, worker.ended(0))
    return found


def names(ends: EndedWorkers) -> set[str]:
    return {one["worker"] for one in ends.summaries()}


def test_ends_are_forgotten_by_task_by_worker_and_by_slot(tmp_path: Path) -> None:
    ends = ended(tmp_path, "a", "b", "c")
    ends.forget("u")
    ends.forget("t", "a")
    assert names(ends) == {"b", "c"}
    ends.forget("t", slot=0)
    ends.forget("u", slot=1)
    assert names(ends) == {"b", "c"}
    ends.forget("t", slot=1)
    assert names(ends) == {"c"}
    ends.forget("t")
    assert names(ends) == set()


def test_ends_fit_into_a_message_for_any_words_of_the_workers(tmp_path: Path) -> None:
    ends = EndedWorkers()
    (tmp_path / "log").write_bytes(b"\x00" * 4096)
    for number in range(1000):
        worker = WorkerRecord(order(tmp_path, f"w{number}", slot=number))
        ends.add(worker, worker.ended(-int(signal.SIGTERM)))
    known = list(ends.summaries())
    assert len(encode({"type": "register", "ended": known})) < LINE_LIMIT
    assert known[0]["worker"] == "w999", "the last are named first, and with their words"
    assert known[0]["exit"]["tail"]
    assert len(known) == 256
