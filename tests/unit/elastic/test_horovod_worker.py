"""A Horovod worker, moved by a scripted agent, with a stand-in for Horovod that knows groups of one process."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bftrain_elastic import report
from bftrain_elastic.tryout.local_agents import listening
from bftrain_elastic.worker import checkpoint_file, horovod_group, horovod_worker, progress_report, run_loop
from bftrain_elastic.worker.agent_channel import AgentChannel
from bftrain_elastic.worker.horovod_group import NotAllCame
from bftrain_elastic.worker.process_groups import GroupRank
from tests.helpers.horovod_stand_in import Agent, InternalError, Kept, StandIn, UpdatedError

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")

MORE = 0.5  # what a step adds to the weight


@pytest.fixture
def horovod(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    names = ("horovod", "horovod.torch", "horovod.torch.elastic", "horovod.common", "horovod.common.exceptions")
    modules: dict[str, Any] = {name: ModuleType(name) for name in names}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(modules[parent], child, module)
    modules["horovod"].__version__ = "0.28.1"
    hvd, exceptions = modules["horovod.torch"], modules["horovod.common.exceptions"]
    exceptions.HorovodInternalError, exceptions.HostsUpdatedInterrupt = InternalError, UpdatedError
    hvd.init, hvd.shutdown = stand_in.init, lambda: None
    hvd.Max, hvd.allreduce = "max", stand_in.allreduce
    hvd.broadcast_object = stand_in.broadcast
    monkeypatch.setattr(horovod_group, "wait_for_members", stand_in.come)
    modules["horovod.torch.elastic"].run_fn = lambda *_: pytest.fail("Horovod's own loop")
    modules["horovod.torch.elastic"].run = lambda train: modules["horovod.torch.elastic"].run_fn(train, None)
    return stand_in


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    for name in [name for name in os.environ if name.startswith("HOROVOD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", dict(os.environ))  # what the worker sets there goes with the test
    os.environ |= {"BFTRAIN_SOCKET": str(tmp_path / "agent"), "BFTRAIN_WORKER": "w1"}
    os.environ |= {"BFTRAIN_FOLDER": str(tmp_path), "BFTRAIN_ADDRESS": "127.0.0.1"}
    monkeypatch.setattr(progress_report, "_current", None)
    other_end = Agent(tmp_path / "agent")
    connect = AgentChannel.from_environment

    def remembered() -> AgentChannel | None:
        channel = connect()
        if channel is not None:
            other_end.channels.append(channel)
        return channel

    monkeypatch.setattr(AgentChannel, "from_environment", remembered)
    before = listening([os.getpid()])
    yield other_end
    other_end.close()
    for channel in other_end.channels:
        channel.close()
    assert listening([os.getpid()]) == before, "no port is left open"


def begin(script: Callable[[Kept], Any], state: Kept) -> tuple[threading.Thread, list[Any]]:
    """Run a script's training in a thread; its result, or what ended it, comes into the list."""
    run_loop.trained.clear()  # each stands for a process of its own
    horovod_worker.install()
    ended: list[Any] = []

    def work() -> None:
        try:
            ended.append(sys.modules["horovod.torch.elastic"].run(script)(state))
        except BaseException as error:  # noqa: BLE001 - the test looks at any error
            ended.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, ended


def steps(until: int, at: Callable[[Kept], None] = lambda _state: None) -> Callable[[Kept], str]:
    def train(state: Kept) -> str:
        while state.position < until:
            with torch.no_grad():
                state.model.weight += MORE
            state.position += 1
            at(state)
            report(samples=8, loss=1.0)
            state.commit()
        return "trained"

    return train


def test_alone_it_trains_reports_and_writes_what_it_did(horovod: StandIn, agent: Agent, tmp_path: Path) -> None:
    state = Kept()
    thread, ended = begin(steps(3), state)
    assert agent.hear("ready") | {"store": []} == {
        "type": "ready", "step": -1, "generation": 0, "store": [], "reason": "",
    }  # fmt: skip
    agent.go(1)
    assert agent.hear("confirmed") == {"type": "confirmed", "generation": 1, "step": 0}
    assert agent.hear("done")["step"] == 3
    thread.join(10)
    assert ended == ["trained"]
    assert [one["step"] for one in agent.said if one["type"] == "report"] == [1, 2, 3]
    assert checkpoint_file.step_of(tmp_path) == 3
    assert state.resets == 1
    (group,) = horovod.groups
    assert (group["HOROVOD_RANK"], group["HOROVOD_SIZE"], group["HOROVOD_GLOO_IFACE"]) == ("0", "1", "lo")


def test_it_goes_on_from_the_folder(horovod: StandIn, agent: Agent, tmp_path: Path) -> None:
    thread, _ = begin(steps(3), Kept())
    agent.hear("ready")
    agent.go(1)
    agent.hear("done")
    thread.join(10)
    agent.close()

    (tmp_path / "agent").unlink()
    other = Agent(tmp_path / "agent")
    state = Kept()
    thread, ended = begin(steps(5), state)
    other.hear("ready")
    other.go(1)
    assert other.hear("confirmed")["step"] == 3
    assert other.hear("done")["step"] == 5
    thread.join(10)
    assert ended == ["trained"]
    assert (state.position, state.model.weight.item()) == (5, 5 * MORE)
    other.close()
    assert len(horovod.groups) == 2


def test_a_script_trains_once(horovod: StandIn, agent: Agent) -> None:
    script = steps(2)
    thread, ended = begin(
        lambda state: [script(state), sys.modules["horovod.torch.elastic"].run(script)(Kept())], Kept()
    )
    agent.hear("ready")
    agent.go(1)
    agent.hear("report")
    thread.join(10)
    assert "can train only once" in str(ended[0])
    assert len(horovod.groups) == 1


def test_it_gathers_at_a_commit_and_joins_the_next_group(horovod: StandIn, agent: Agent) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def at(state: Kept) -> None:
        if state.position == 2:
            asked.set()
            go_on.wait(10)

    state = Kept()
    thread, ended = begin(steps(4, at), state)
    agent.hear("ready")
    agent.go(1)
    assert asked.wait(10)
    agent.tell(type="gather", generation=2)
    agent.tell(type="gather", generation=2)  # a notice may come twice
    while agent.channels[0].gather < 2:
        time.sleep(0.001)
    go_on.set()
    ready = agent.hear("ready")
    assert (ready["step"], ready["generation"], ready["reason"]) == (2, 1, "")
    agent.go(2, rank=1, workers=2, sync=False)
    assert agent.hear("done")["step"] == 4
    thread.join(10)
    assert ended == ["trained"]
    assert state.syncs == 0
    assert not [one for one in agent.said if one["type"] == "confirmed" and one["generation"] == 2]  # not the first
    assert horovod.groups[1]["HOROVOD_GLOO_RENDEZVOUS_PORT"] == "12345"
    assert horovod.groups[1]["HOROVOD_HOSTNAME"] == "rank1of2"


def test_when_another_dies_it_returns_to_its_commit(horovod: StandIn, agent: Agent) -> None:
    deaths = [InternalError("Horovod has been shut down. This was caused by an exception on one of the ranks")]

    def at(state: Kept) -> None:
        if state.position == 3 and deaths:
            raise deaths.pop()

    state = Kept()
    thread, ended = begin(steps(4, at), state)
    agent.hear("ready")
    agent.go(1, workers=2)
    ready = agent.hear("ready")
    assert (ready["step"], ready["reason"]) == (2, "Horovod has been shut down")
    assert (state.position, state.model.weight.item()) == (2, 2 * MORE)
    agent.go(2)
    assert agent.hear("done")["step"] == 4
    thread.join(10)
    assert ended == ["trained"]
    assert state.model.weight.item() == 4 * MORE
    assert len(horovod.groups) == 2


def test_a_group_that_does_not_form_is_no_end(horovod: StandIn, agent: Agent) -> None:
    horovod.formed = False
    thread, ended = begin(steps(1), Kept())
    agent.hear("ready")
    agent.go(1, workers=3)
    assert agent.hear("ready")["reason"] == "Horovod initialization failed"
    horovod.formed = True
    agent.go(2)
    agent.hear("done")
    thread.join(10)
    assert ended == ["trained"]


@pytest.mark.usefixtures("horovod")
def test_a_worker_that_horovod_keeps_waiting_for_dead_members_saves_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, goes_on = threading.Event(), threading.Event()
    done: list[object] = []

    def init() -> None:
        asked.set()
        assert goes_on.wait(30)

    monkeypatch.setattr(sys.modules["horovod.torch"], "init", init)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(os, "_exit", done.append)
    monkeypatch.setattr(horovod_group, "_STUCK_S", 0.1)
    group = horovod_group.HorovodGroup("127.0.0.1")
    place, store = GroupRank(1, 0, 2, 2), (group.meeting.host, group.meeting.port)
    thread = threading.Thread(target=group.form, args=(place, store, lambda: done.append("saved")))
    thread.start()
    assert asked.wait(30)
    group.abort()
    assert done == ["saved", os.EX_TEMPFAIL]
    goes_on.set()
    thread.join(10)
    group.abort()
    assert len(done) == 2, "it is in the group now, and sees by itself that connections were cut"
    group.close()


@pytest.mark.parametrize("save", [True, False])
def test_it_leaves_when_asked_and_writes_first_if_asked(
    horovod: StandIn, agent: Agent, tmp_path: Path, *, save: bool
) -> None:
    thread, ended = begin(steps(1), Kept())
    agent.hear("ready")
    agent.tell(type="leave", save=save)
    thread.join(10)
    assert isinstance(ended[0], SystemExit)
    assert ended[0].code == 0
    assert (checkpoint_file.step_of(tmp_path) == 0) is save
    assert horovod.groups == []


def test_it_ends_with_its_agent(horovod: StandIn, agent: Agent) -> None:
    thread, ended = begin(steps(1), Kept())
    agent.hear("ready")
    agent.close()
    thread.join(10)
    assert "the agent is gone" in str(ended[0])
    assert horovod.groups == []


def test_without_an_agent_horovod_stays_as_it_is(horovod: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BFTRAIN_SOCKET", raising=False)
    before = sys.modules["horovod.torch.elastic"].run_fn
    horovod_worker.install()
    assert sys.modules["horovod.torch.elastic"].run_fn is before
    assert horovod.groups == []


def test_no_horovod_is_said_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "horovod", None)
    monkeypatch.delitem(sys.modules, "horovod.torch", raising=False)
    with pytest.raises(horovod_worker.NoHorovod, match="make horovod"):
        horovod_worker.install()


@pytest.mark.usefixtures("horovod")
def test_a_horovod_of_another_make_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["horovod.torch.elastic"], "run_fn")
    with pytest.raises(horovod_worker.NoHorovod, match=r"version 0\.28\.1 has no run_fn"):
        horovod_worker.install()


def test_the_values_of_the_first_worker_come_before_the_copy(horovod: StandIn, agent: Agent) -> None:
    seen: list[int] = []

    def at(state: Kept) -> None:
        seen.append(state.evals)
        if state.position == 2:  # from now on rank 0 has other values
            horovod.others = [0, 1 << 60, 1 << 60, 0, 0, -(1 << 60), -(1 << 60), 0]
            horovod.values = (2, 16, {"position": 2, "evals": 52})
        else:
            horovod.others = None

    state = Kept()
    state.evals = 0
    thread, ended = begin(steps(3, at), state)
    agent.hear("ready")
    agent.go(1, rank=1, workers=2, sync=False)
    agent.hear("done")
    thread.join(10)
    assert ended == ["trained"]
    assert seen == [0, 0, 52]
    assert len(horovod.sent) == 1, "only when they differ"


@pytest.mark.usefixtures("horovod")
def test_two_nodes_have_it_in_memory(agent: Agent) -> None:
    thread, ended = begin(steps(3), Kept())
    agent.hear("ready")
    agent.go(1, workers=2)
    agent.hear("done")
    thread.join(10)
    assert ended == ["trained"]
    assert [one["step"] for one in agent.said if one["type"] == "in_memory"][:1] == [1]
    assert [one["type"] for one in agent.said][-2:] == ["on_disk", "done"], "what is done is on disk"
    assert [one["total"] for one in agent.said if one["type"] == "report"] == [8, 16, 24]


@pytest.mark.usefixtures("horovod")
def test_alone_it_receives_only_what_is_on_disk(agent: Agent) -> None:
    thread, _ = begin(steps(3), Kept())
    agent.hear("ready")
    agent.go(1)
    agent.hear("done")
    thread.join(10)
    assert {one["type"] for one in agent.said} == {"hello", "ready", "joined", "confirmed", "report", "on_disk", "done"}


def test_horovod_is_not_asked_before_all_members_are_there(
    horovod: StandIn, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends its process when it waits in vain."""

    def in_vain(*_: object) -> None:
        raise NotAllCame("not all 3 came")

    monkeypatch.setattr(horovod_group, "wait_for_members", in_vain)
    thread, ended = begin(steps(1), Kept())
    agent.hear("ready")
    agent.go(1, workers=3)
    assert agent.hear("ready")["reason"] == "not all 3 came"
    assert horovod.groups == []
    agent.go(2)
    agent.hear("done")
    thread.join(10)
    assert ended == ["trained"]
