"""A running site that release 0.1.0 recorded: a daemon of this version takes it over, and no task is lost or restarted.

``tests/data/running-site`` has the journal of a daemon that was killed, with two tasks on three nodes, and the first
message of each agent to the next daemon. The agents here send those messages.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from unittest import mock

from bftrain import Journal, Rerun, registry
from bftrain_elastic.wire.authenticated_stream import AuthenticatedStream, read_secret
from bftrain_elastic.wire.messages import Message
from tests.helpers.live_inside import HERE, Agents, Times, World, in_a_loop, live_inside, ourselves, until

RECORDED: Final = Path(__file__).parents[2] / "data" / "running-site"
HELD: Final = json.loads((RECORDED / "held.json").read_text())
ORDERS: Final = {"spawn", "stop", "clear", "message"}


class RecordedAgent:
    """An agent that registers as it did when it was recorded; ``heard`` has what the manager sends."""

    def __init__(self, address: tuple[str, int], secret: bytes, registers: Message) -> None:
        self.heard: list[Message] = []
        self._connection = socket.create_connection(address, timeout=30)
        self._sealed = AuthenticatedStream(secret, "agent")
        self._connection.sendall(self._sealed.greeting)
        while not self._sealed.greeted:
            self.heard.extend(self._sealed.feed(self._connection.recv(65536)))
        self._connection.sendall(self._sealed.seal(registers))

    def listen(self, seconds: float) -> None:
        """Take in what comes until nothing has come for so long."""
        self._connection.settimeout(seconds)
        try:
            while data := self._connection.recv(65536):
                self.heard.extend(self._sealed.feed(data))
        except TimeoutError:
            pass

    def close(self) -> None:
        self._connection.close()


def copied(folder: Path) -> None:
    """Copy the journal, with the folders of its tasks in this one."""
    home = folder / "live"
    home.mkdir(mode=0o700)
    shutil.copy(RECORDED / "live.db", home / "live.db")
    with closing(sqlite3.connect(home / "live.db")) as connection, connection:
        connection.execute("UPDATE task SET body = replace(body, '/site', ?)", (str(folder),))
        connection.execute("DELETE FROM fact WHERE key = 'port of the hub'")


@in_a_loop
async def test_a_daemon_of_this_version_takes_it_over(tmp_path: Path) -> None:
    copied(tmp_path)
    registers = [json.loads(line) for line in (RECORDED / "agents.jsonl").read_text().splitlines()]
    world = World(agents=True)
    world.allowed = {message["node"] for message in registers}
    found: Any = registry.BUILT_IN
    local = {"scheduler": {**found["scheduler"], "local": f"{HERE}:make_scheduler"}}
    site: dict[str, Any] = {
        "scheduler": {"name": "local"},
        "launcher": "process",
        "agents": Agents(preload=(), patience_s=20.0),
        "times": Times(reunion_s=20.0),
    }
    with mock.patch.dict(found, local):
        async with live_inside(tmp_path, world, begin=False, **site) as (daemon, service, _, _):
            begins = asyncio.create_task(daemon.begin())
            await until(lambda: daemon.state == "reuniting", "it waits for agents")
            assert daemon.opened.hub is not None
            address, secret = daemon.opened.hub.address, read_secret(daemon.site.secret)
            agents = [await asyncio.to_thread(RecordedAgent, address, secret, message) for message in registers]
            await begins
            await asyncio.gather(*(asyncio.to_thread(agent.listen, 0.3) for agent in agents))
            tasks = {task.name: task for task in service.tasks(ourselves(), over=True)}
            for agent in agents:
                agent.close()
    assert daemon.state == "running"
    assert {name: sorted(task.nodes) for name, task in tasks.items()} == HELD, "0 lost"
    assert all(task.running == task.max_nodes for task in tasks.values()), "their workers are known again"
    assert [(task.preemptions, task.failures) for task in tasks.values()] == [(0, 0), (0, 0)]
    assert all(task.step > 240 for task in tasks.values()), "what they did without a daemon counts"
    orders = [message for agent in agents for message in agent.heard if message["type"] in ORDERS]
    assert orders == [], "0 restarted"
    with Journal.open(tmp_path / "live" / "live.db") as journal:
        assert list(Rerun(journal).differences()) == []
