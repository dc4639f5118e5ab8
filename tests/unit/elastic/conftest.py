"""What tests of the hub share: a hub, agents that say what the test says, and a launcher with one task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bftrain_elastic.manager.agent_hub import AgentHub
from bftrain_elastic.manager.launchers import AgentLauncher
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire.messages import Message
from tests.helpers.scripted_agents import SECRET, Agent, MessageInbox, Simple


@pytest.fixture
def inbox() -> MessageInbox:
    return MessageInbox()


@pytest.fixture
def hub(inbox: MessageInbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentHub]:
    patient = replace(TIMEOUTS, agent_silence_s=600.0)  # these agents have no heartbeat
    monkeypatch.setattr("bftrain_elastic.manager.hub_inputs.TIMEOUTS", patient)
    running = AgentHub(inbox, SECRET)
    yield running
    running.close()


@pytest.fixture
def comes(hub: AgentHub) -> Iterator[Callable[..., Agent]]:
    """Yield what lets an agent come: its node, and the workers it has."""
    agents: list[Agent] = []

    def come(node: str, *workers: Message, **more: Any) -> Agent:  # noqa: ANN401 - as Agent takes them
        agents.append(Agent(hub, node, *workers, **more))
        return agents[-1]

    yield come
    for agent in agents:
        agent.close()


@pytest.fixture
def launcher(hub: AgentHub, tmp_path: Path) -> AgentLauncher:
    launches = AgentLauncher("simple", Simple, hub)
    ends = {"finish_code": 7, "finish_file": "/f/over"}
    launches.add("t", {"argv": ["x.py"], "folder": str(tmp_path / "t"), **ends})
    return launches
