"""What workers print is kept within a limit: the beginning and the end of it, in whole lines."""

from __future__ import annotations

import os
from pathlib import Path

from bftrain_elastic.agent.log_limit import cut_middle, limit_logs
from bftrain_elastic.agent.worker_records import WorkerRecord
from bftrain_elastic.wire.agent_messages import SpawnWorker

LIMIT = 16 * 1024
MARK = "[bftrain: lines are left out here, for this log became longer than 0.016384 MB]"


def line(number: int) -> str:
    return f"line {number:06d}"


def test_a_log_within_its_limit_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "n1-0.log"
    log.write_bytes(b"x" * LIMIT)
    assert cut_middle(log, LIMIT) == 0
    assert log.read_bytes() == b"x" * LIMIT


def test_of_a_long_log_the_beginning_and_the_end_are_kept_however_often_it_is_cut(tmp_path: Path) -> None:
    log = tmp_path / "n1-0.log"
    written = 0
    with log.open("a") as file:  # as a worker has it: what it writes goes to the end, wherever that is
        for _ in range(5):
            file.writelines(f"{line(number)}\n" for number in range(written, written + 2_000))
            file.flush()
            written += 2_000
            before = log.stat().st_size
            assert cut_middle(log, LIMIT) == before - log.stat().st_size
            assert log.stat().st_size <= LIMIT
            lines = log.read_text().splitlines()
            cut = lines.index(MARK)
            first, last = lines[:cut], lines[cut + 1 :]
            assert first == [line(number) for number in range(len(first))]
            assert len(first) > 600
            assert last == [line(number) for number in range(written - len(last), written)]
            assert len(last) > 300


def test_a_log_without_lines_is_cut_too(tmp_path: Path) -> None:
    log = tmp_path / "n1-0.log"
    log.write_bytes(b"a" * 100_000 + b"z" * 100_000)
    cut_middle(log, LIMIT)
    found = log.read_bytes()
    assert (len(found) <= LIMIT, found[:1], found[-1:], MARK.encode() in found) == (True, b"a", b"z", True)


def test_the_last_words_of_a_worker_are_found_after_its_log_was_cut(tmp_path: Path) -> None:
    log = tmp_path / "n1-0.log"
    log.write_text("of an earlier worker\n" * 2_000)
    order = SpawnWorker(worker="t/n1/0/1-1", task="t", argv=("s.py",), env={}, cwd="/", log=str(log))
    worker = WorkerRecord(order, log.stat().st_size)
    with log.open("a") as file:
        file.write("last words\n")
    limit_logs([worker], LIMIT)
    assert log.stat().st_size <= LIMIT
    assert worker.ended(1)["tail"] == "last words\n"


def test_what_is_no_log_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * 2 * LIMIT)
    (tmp_path / "link.log").symlink_to(other)
    os.mkfifo(tmp_path / "pipe.log")
    for name in ("link.log", "pipe.log", "none.log"):
        order = SpawnWorker(worker=name, task="t", argv=("s.py",), env={}, cwd="/", log=str(tmp_path / name))
        limit_logs([WorkerRecord(order)], LIMIT)
    assert other.stat().st_size == 2 * LIMIT
