"""A live run that is looked at, by a browser or in a terminal; it has a past, and can be ended and begun again."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from bftrain.live.api.status_stream import HistoryLevel, HistorySample
from bftrain.live.model.site_config import Api
from tests.helpers.live_inside import Inside, World, submit
from tests.helpers.live_thread import LiveThread, live_thread


class ObservedRun:
    """A live run on loopback, always on the same port; ``changes`` are settings of its site."""

    def __init__(self, folder: Path, **changes: Any) -> None:  # noqa: ANN401 - any setting of a site
        self.folder = folder
        self._changes = changes
        self.world = World()
        self.port = 0
        self.run: LiveThread
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self) -> None:
        """Begin, or begin again."""
        api = Api(tcp=f"127.0.0.1:{self.port}")
        self.run = self._stack.enter_context(live_thread(self.folder, self.world, api=api, **self._changes))
        self.port = int(self.run.http.rpartition(":")[2])

    def end(self) -> None:
        self._stack.close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def token(self) -> str:
        return self.run.token_file.read_text().strip()

    @property
    def inside(self) -> Inside:
        return self.run.inside

    def submit(self, name: str, **more: Any) -> None:  # noqa: ANN401 - any field of a submission
        self.run.do(lambda inside: submit(inside.service, name, **more))

    def lend(self, *nodes: str) -> None:
        self.run.do(lambda inside: inside.world.lend(*nodes))

    def take(self, *nodes: str) -> None:
        self.run.do(lambda inside: inside.world.take(*nodes))

    def report(self, task: str, step: int, samples: int = 64, seconds: float = 0.1) -> None:
        """Tell of two steps of a task, the second of which took so long."""
        now, size = time.time(), len(self.world.held.get(task, ()))
        for number in (0, 1):
            report = {"step": step + number, "size": size, "samples": samples, "loss": 2.0 / (step + 1)}
            at = now + number * seconds
            self.run.do(lambda inside, report=report, at=at: inside.world.tell(task, "report", **{**report, "t": at}))

    def past(self, names: tuple[str, ...], nodes: int, seconds: float) -> None:
        """Make up a past: tasks that grew and shrank on up to ``nodes`` nodes, and days on which something was done."""
        self.run.do(lambda inside: _past(inside, names, nodes, seconds))


def _past(inside: Inside, names: tuple[str, ...], nodes: int, seconds: float) -> None:
    dice = random.Random(1)  # noqa: S311 - the same every time
    history, now = inside.service.watch.history, time.time()
    history.levels = tuple(HistoryLevel(level.span) for level in history.levels)
    history._at_s = None  # noqa: SLF001 - time is set back, which no product code may
    numbers = {record.name: record.number for record in inside.daemon.task_store.unfinished}
    pool, shares, sizes = nodes // 2, {name: dice.random() + 0.2 for name in names}, dict[int, int]()
    for second in range(int(seconds)):
        if dice.random() < 0.03 or not sizes:
            pool = max(nodes // 3, min(nodes, pool + dice.randint(-nodes // 4 - 1, nodes // 4 + 1)))
            shares = {name: max(0.0, share + dice.uniform(-0.3, 0.3)) for name, share in shares.items()}
            total = sum(shares.values()) or 1.0
            sizes = {numbers[name]: int(pool * share / total + 0.4) for name, share in shares.items()}
        speed = sum(900.0 * size**0.93 for size in sizes.values()) * dice.uniform(0.97, 1.03)
        history.look(
            now - seconds + second, HistorySample(pool, speed, {one: size for one, size in sizes.items() if size})
        )
    history.look(now)
    for back in range(13):
        day, node_s = time.strftime("%Y-%m-%d", time.localtime(now - 86400 * back)), nodes * 3600 * dice.uniform(4, 15)
        inside.daemon.task_manager.ledger._days[day] = (node_s * 850, node_s)  # noqa: SLF001 - as above
