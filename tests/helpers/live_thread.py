"""A live run in a thread of its own, for callers outside its event loop: commands, clients, fuzzers."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.helpers.live_inside import Inside, World, decided, live_inside

PATIENCE_S = 120.0


class LiveThread:
    """The live run; ``do`` does something in its loop."""

    def __init__(self, inside: Inside, loop: asyncio.AbstractEventLoop) -> None:
        self.inside = inside
        self._loop = loop

    @property
    def socket(self) -> str:
        return str(self.inside.daemon.site.socket)

    @property
    def token_file(self) -> Path:
        return self.inside.daemon.site.token

    @property
    def http(self) -> str:
        return next(address for address in self.inside.api.addresses if address.startswith("http"))

    def do(self, what: Callable[[Inside], Any]) -> Any:  # noqa: ANN401 - as that returns
        """Call a function in its event loop, and wait until its effects are decided."""

        async def done() -> Any:  # noqa: ANN401 - as above
            result = what(self.inside)
            if inspect.isawaitable(result):
                result = await result
            await decided(self.inside.daemon)
            return result

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(PATIENCE_S)


@contextmanager
def live_thread(folder: Path, world: World | None = None, **changes: Any) -> Iterator[LiveThread]:  # noqa: ANN401 - settings of a site
    """Yield a live run that has begun; ``changes`` are settings of its site."""
    began: list[LiveThread] = []
    failed: list[BaseException] = []
    ready = threading.Event()
    end: list[Callable[[], None]] = []

    async def live() -> None:
        loop, ending = asyncio.get_running_loop(), asyncio.Event()
        async with live_inside(folder, world, **changes) as inside:
            began.append(LiveThread(inside, loop))
            end.append(lambda: loop.call_soon_threadsafe(ending.set))  # type: ignore[arg-type,return-value]  # a handle
            ready.set()
            await ending.wait()

    def run() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:  # noqa: BLE001 - it is raised where the test sees it
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="live run")
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        if began:
            yield began[0]
    finally:
        for one in end:
            one()
        thread.join(PATIENCE_S)
    if failed:
        raise failed[0]
