"""What an agent knows of its workers, those that run and those that ended, until a manager has taken note of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bftrain_elastic.wire.messages import Message, encode, inner_of, text_of, whole_of

_TAIL_BYTES: Final = 2048
_NO_STEP: Final = -1
_KEPT: Final = 256  # ended workers that an agent remembers at most
_ENDED_BYTES: Final = 512 * 1024  # of them in one message; the limit of a message is twice that
_KILLED_BY_KERNEL: Final = "bftrain: the kernel's out-of-memory killer was at work on this node"


def out_of_memory_kills() -> int:
    """Return how many processes the kernel has killed on this node for lack of memory; 0 if it does not say."""
    try:
        counters = Path("/proc/vmstat").read_bytes()
    except OSError:
        return 0
    _, _, rest = counters.partition(b"\noom_kill ")
    return int(rest.split(b"\n", 1)[0]) if rest else 0


@dataclass
class WorkerRecord:
    """A worker as its agent knows it."""

    name: str
    task: str
    slot: int
    log: Path
    log_start: int
    finish_code: int | None = None
    finish_file: str = ""
    warm: bool = True
    port: int = 0
    pid: int = 0
    order: Message | None = None  # to the nursery; nothing once it was sent
    ordered_at: float = 0.0  # on the monotonic clock: when the nursery was last asked to start or kill it; 0: it did so
    kill_at: float = 0.0  # on the monotonic clock; 0: not to be killed
    condemned: bool = False  # SIGKILL was sent, or will be as soon as it is born
    forgotten: bool = False  # its task was dropped: no manager will ask for its end
    oom_kills: int = field(default_factory=out_of_memory_kills)  # when it was started
    # What a manager has to know that did not see it happen
    step: int = _NO_STEP  # the last one it spoke of
    go: Message | None = None  # the last group that it was to form, or was started for
    ready: Message | None = None  # what it said when it was ready, unless it was to form a group since
    report: Message | None = None  # the last step that it reported
    done: bool = False  # its training is over
    finished: bool = False  # it said that its work is done
    stopped: bool = False  # it said that it ends on request
    asked_to_end: bool = False  # it ran when it got SIGTERM, so what it does then may follow from that
    odd: bool = False  # it said what cannot be

    @classmethod
    def of_order(cls, message: Message, log_start: int) -> WorkerRecord:
        """Read the manager's order to start it."""
        code = message.get("finish_code")
        place = inner_of(message, "place") if message.get("place") else None
        return cls(
            name=text_of(message, "worker"),
            task=text_of(message, "task"),
            slot=whole_of(message, "slot"),
            log=Path(text_of(message, "log")),
            log_start=log_start,
            finish_code=code if isinstance(code, int) else None,
            finish_file=str(message.get("finish_file") or ""),
            warm=bool(message.get("warm")),
            go=place and {name: whole_of(place, name) for name in ("generation", "rank", "workers")},
        )

    def on_message(self, message: Message) -> None:
        """Remember what was said to it."""
        if message.get("type") == "go":
            self.go, self.ready = {name: message[name] for name in ("generation", "rank", "workers")}, None

    def said(self, words: Message) -> None:
        """Remember what it said."""
        self.step = words.get("step", self.step)
        match words["type"]:
            case "ready":
                self.ready = words
            case "report":
                self.report = words
            case "done":
                self.done = True
            case "finished":
                self.finished = True
            case "stopped":
                self.stopped = True

    def known(self) -> Message:
        """Return what a new manager has to know of it."""
        return {
            "worker": self.name,
            "task": self.task,
            "slot": self.slot,
            "step": self.step,
            "go": self.go,
            "ready": self.ready,
            "done": self.done,
            "report": self.report,
        }

    def ended(self, code: int) -> Message:
        """Return how it ended: its exit code, its last words, and what it said of its end."""
        finished = self.finished or code == self.finish_code
        finished = finished or (code == 0 and (self.done or self._finish_file_is_there()))
        # Without a handler it would not have ended with 0 after a SIGTERM
        stopped = self.stopped or (code == 0 and self.asked_to_end)
        return {"code": code, "tail": self._tail(code), "finished": finished, "stopped": stopped}

    def _finish_file_is_there(self) -> bool:
        try:
            return bool(self.finish_file) and Path(self.finish_file).exists()
        except OSError:
            return False

    def _tail(self, code: int) -> str:
        try:
            with self.log.open("rb") as log:
                log.seek(max(self.log_start, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except OSError:
            text = ""
        if code == -signal.SIGKILL and not self.condemned and out_of_memory_kills() > self.oom_kills:
            text = f"{text.rstrip()}\n{_KILLED_BY_KERNEL}\n".lstrip()
        return text


@dataclass
class _EndedWorker:
    worker: WorkerRecord
    exit: Message
    ended_at: float


class EndedWorkers:
    """The ends of workers, kept for the next manager until one has them forgotten."""

    def __init__(self) -> None:
        self._ended: dict[str, _EndedWorker] = {}

    def __contains__(self, worker: str) -> bool:
        return worker in self._ended

    def add(self, worker: WorkerRecord, exit_: Message) -> None:
        """Keep the end of a worker."""
        self._ended[worker.name] = _EndedWorker(worker, exit_, time.monotonic())
        while len(self._ended) > _KEPT:
            del self._ended[next(iter(self._ended))]

    def forget(self, task: str, worker: str = "") -> None:
        """Forget the end of one worker, or those of all workers of a task."""
        self._drop(lambda one: one.task == task and (not worker or one.name == worker))

    def replace(self, task: str, slot: int) -> None:
        """Forget the ends of workers of a task on a slot, on which another one is started."""
        self._drop(lambda one: one.task == task and one.slot == slot)

    def known(self) -> Iterator[Message]:
        """Return what a new manager has to know; last words are left out where a message has no room for them."""
        room = _ENDED_BYTES
        for one in reversed(list(self._ended.values())):
            exit_ = {**one.exit, "ago_s": round(time.monotonic() - one.ended_at, 3)}
            message = {**one.worker.known(), "exit": exit_}
            size = len(encode(message))
            if size > room:
                exit_["tail"] = ""
            else:
                room -= size
            yield message

    def _drop(self, unwanted: Callable[[WorkerRecord], bool]) -> None:
        self._ended = {name: one for name, one in self._ended.items() if not unwanted(one.worker)}
