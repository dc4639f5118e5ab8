"""What agents remember of their workers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from bftrain_elastic.agent import worker_records
from bftrain_elastic.agent.worker_records import EndedWorkers, WorkerRecord, out_of_memory_kills
from bftrain_elastic.manager.task_lifecycles import LeftWorker
from bftrain_elastic.wire.messages import LINE_LIMIT, Message, encode


def order(folder: Path, worker: str = "t/n1/0/1-1", task: str = "t", slot: int = 0, **more: object) -> Message:
    return {"worker": worker, "task": task, "slot": slot, "log": str(folder / "log"), **more}


def test_a_worker_is_told_to_the_next_manager_with_all_that_it_said(tmp_path: Path) -> None:
    worker = WorkerRecord.of_order(order(tmp_path, place={"generation": 2, "rank": 1, "workers": 3}), 0)
    known = LeftWorker.read(worker.known())
    assert (known.generation, known.rank, known.workers, known.step, known.report) == (2, 1, 3, -1, None)
    report = {"type": "report", "t": 1.0, "step": 5, "size": 1, "samples": 8, "loss": 0.5, "total": 40, "since": 0}
    worker.said(report | {"nan": False, "restarted": False})
    worker.said({"type": "ready", "step": 6, "generation": 2, "store": ["h", 1], "reason": ""})
    known = LeftWorker.read(worker.known())
    assert known.report == report | {"nan": False, "restarted": False}
    assert known.ready is not None
    assert known.step == 6
    worker.on_message({"type": "go", "generation": 3, "rank": 0, "workers": 2, "size": 2, "store": ["h", 1]})
    worker.said({"type": "done", "step": 9})
    known = LeftWorker.read(worker.known())
    assert (known.generation, known.rank, known.workers, known.step) == (3, 0, 2, 9)
    assert known.ready is None
    assert known.done
    assert worker.ended(0) == {"code": 0, "tail": "", "finished": True, "stopped": False}


def test_what_a_worker_said_of_its_end_is_told(tmp_path: Path) -> None:
    worker = WorkerRecord.of_order(order(tmp_path), 4)
    (tmp_path / "log").write_text("old\nlast words\n")
    worker.said({"type": "stopped", "step": 3})
    assert worker.ended(0) == {"code": 0, "tail": "last words\n", "finished": False, "stopped": True}


@pytest.mark.parametrize(("condemned", "code", "told"), [(False, -9, True), (True, -9, False), (False, 1, False)])
def test_a_kill_of_the_kernel_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    condemned: bool,  # noqa: FBT001 - a parameter of the test
    code: int,
    told: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    counts = [3, 4]
    monkeypatch.setattr(worker_records, "out_of_memory_kills", lambda: counts[-1])
    worker = WorkerRecord.of_order(order(tmp_path), 0)
    worker.oom_kills, worker.condemned = counts[0], condemned
    (tmp_path / "log").write_text("loading\n")
    line = "bftrain: the kernel's out-of-memory killer was at work on this node\n"
    assert worker.ended(code)["tail"] == "loading\n" + (line if told else "")


def test_the_kernel_is_asked_how_many_it_killed() -> None:
    if "oom_kill " in Path("/proc/vmstat").read_text():
        assert out_of_memory_kills() >= 0


def ended(folder: Path, *names: str, task: str = "t") -> EndedWorkers:
    found = EndedWorkers()
    for slot, name in enumerate(names):
        worker = WorkerRecord.of_order(order(folder, name, task, slot), 0)
        found.add(worker, worker.ended(0))
    return found


def names(ends: EndedWorkers) -> set[str]:
    return {one["worker"] for one in ends.known()}


def test_ends_are_forgotten_by_task_by_worker_and_by_slot(tmp_path: Path) -> None:
    ends = ended(tmp_path, "a", "b", "c")
    ends.forget("u")
    ends.forget("t", "a")
    assert names(ends) == {"b", "c"}
    ends.replace("t", 0)
    ends.replace("u", 1)
    assert names(ends) == {"b", "c"}
    ends.replace("t", 1)
    assert names(ends) == {"c"}
    ends.forget("t")
    assert names(ends) == set()


def test_ends_fit_into_a_message_whatever_the_workers_wrote(tmp_path: Path) -> None:
    ends = EndedWorkers()
    (tmp_path / "log").write_bytes(b"\x00" * 4096)
    for number in range(1000):
        worker = WorkerRecord.of_order(order(tmp_path, f"w{number}", slot=number), 0)
        ends.add(worker, worker.ended(-int(signal.SIGTERM)))
    known = list(ends.known())
    assert len(encode({"type": "register", "ended": known})) < LINE_LIMIT
    assert known[0]["worker"] == "w999", "the last are told first, and with their words"
    assert known[0]["exit"]["tail"]
    assert len(known) == 256
