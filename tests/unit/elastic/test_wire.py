"""The wire: lines that prove the secret, the file that holds it, and messages that are checked when they are read."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bftrain_elastic.errors import BadMessage, BadSecret
from bftrain_elastic.wire.agent_messages import (
    FROM_AGENT,
    FROM_MANAGER,
    FROM_PREFORK,
    TO_PREFORK,
    ForgetWorkers,
    GroupPlace,
    LeftWorker,
    PreemptionNotice,
    ProcessEnded,
    RegisterAgent,
    SpawnWorker,
    StopWorker,
    WorkerExit,
    WorkerExited,
)
from bftrain_elastic.wire.authenticated_stream import AuthenticatedStream, make_secret, read_secret
from bftrain_elastic.wire.messages import LINE_LIMIT, MessageLines, WireMessage, decode, encode, read_message
from bftrain_elastic.wire.worker_messages import FROM_WORKER, StepReport

SECRET = b"s" * 32


def pair(agents: bytes = SECRET, managers: bytes = SECRET) -> tuple[AuthenticatedStream, AuthenticatedStream]:
    agent, manager = AuthenticatedStream(agents, "agent"), AuthenticatedStream(managers, "manager")
    assert list(agent.feed(manager.greeting)) == []
    assert list(manager.feed(agent.greeting)) == []
    return agent, manager


def test_what_one_seals_the_other_opens_in_pieces_of_any_size() -> None:
    agent, manager = pair()
    messages = [{"type": "alive", "n": number} for number in range(3)]
    data = b"".join(agent.seal(message) for message in messages)
    assert [one for byte in data for one in manager.feed(bytes([byte]))] == messages
    assert list(agent.feed(manager.seal({"type": "bye"}))) == [{"type": "bye"}]


def test_another_secret_is_no_secret() -> None:
    agent, manager = pair(agents=b"x" * 32)
    with pytest.raises(BadMessage, match="not sealed with this run's secret"):
        list(manager.feed(agent.seal({"type": "register"})))


@pytest.mark.parametrize("trick", ["changed", "repeated", "left out", "sent back", "of another connection"])
def test_no_line_can_be_tampered_with(trick: str) -> None:
    agent, manager = pair()
    first, second = agent.seal({"type": "alive"}), agent.seal({"type": "leaving"})
    line = {
        "changed": first.replace(b"alive", b"clear"),
        "repeated": first + first,
        "left out": second,
        "sent back": manager.seal({"type": "bye"}),
        "of another connection": pair()[0].seal({"type": "alive"}),
    }[trick]
    with pytest.raises(BadMessage):
        list(manager.feed(line))


def test_nothing_is_sealed_before_the_greeting() -> None:
    lonely = AuthenticatedStream(SECRET, "agent")
    assert not lonely.greeted
    with pytest.raises(BadMessage, match="before the other side's greeting"):
        lonely.seal({})


def test_a_stranger_may_say_little_and_a_friend_more() -> None:
    agent, manager = pair()
    with pytest.raises(BadMessage, match=r"4,096 bytes"):
        list(AuthenticatedStream(SECRET, "manager").feed(b"x" * 5000))
    list(manager.feed(agent.seal({"type": "register"})))
    assert len(list(manager.feed(agent.seal({"tail": "x" * 100_000})))) == 1


def test_messages_of_any_length_are_cut_and_none_too_long_is_sent() -> None:
    lines = MessageLines(limit=10)
    assert list(lines.feed(b"one\ntwo\nthr")) == [b"one", b"two"]
    with pytest.raises(BadMessage, match="more than 10 bytes"):
        list(lines.feed(b"ee" * 10))
    with pytest.raises(BadMessage, match="message 'said'"):
        encode({"type": "said", "text": "x" * LINE_LIMIT})


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"1"])
def test_what_is_no_message_is_refused(text: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(text)


def test_the_secret_is_its_owners_alone(tmp_path: Path) -> None:
    made = make_secret(tmp_path / "secret")
    assert read_secret(tmp_path / "secret") == made
    assert len(made) == 32
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        make_secret(tmp_path / "secret")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_secret_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    make_secret(tmp_path / "secret")
    (tmp_path / "secret").chmod(mode)
    with pytest.raises(BadSecret, match="chmod 600"):
        read_secret(tmp_path / "secret")


@pytest.mark.parametrize("text", ["", "zz", "00" * 31])
def test_a_damaged_secret_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "secret").write_text(text)
    (tmp_path / "secret").chmod(0o600)
    with pytest.raises(BadSecret, match="remove this file; bftrain live makes a new one when it starts"):
        read_secret(tmp_path / "secret")


def test_a_secret_behind_a_link_is_refused(tmp_path: Path) -> None:
    make_secret(tmp_path / "secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(BadSecret, match="cannot be read"):
        read_secret(tmp_path / "link")


REPORT: dict[str, Any] = {"type": "report", "t": 1.5, "step": 3, "size": 2, "samples": 8, "loss": None}
READY: dict[str, Any] = {"type": "ready", "step": -1, "generation": 0, "store": ["10.0.0.1", 4711], "reason": ""}


def from_worker(words: dict[str, Any]) -> WireMessage | None:
    return read_message(FROM_WORKER, words)


@pytest.mark.parametrize("words", [REPORT, REPORT | {"loss": 0.25, "noise": 2}, READY, {"type": "done", "step": 9}])
def test_what_is_right_is_given_on(words: dict[str, Any]) -> None:
    found = from_worker(words)
    assert found is not None
    assert words.items() <= decode(encode(found.to_dict())).items()
    assert from_worker(words | {"mood": "good"}) == found, "without what does not belong there"


@pytest.mark.parametrize(
    "words",
    [
        {"type": "report"},
        REPORT | {"step": "3"},
        REPORT | {"step": True},
        REPORT | {"step": 10**30},
        REPORT | {"size": 0},
        REPORT | {"samples": -1},
        REPORT | {"total": -1},
        REPORT | {"noise": -0.5},
        REPORT | {"t": float("nan")},
        REPORT | {"t": 10**400},
        REPORT | {"loss": float("inf")},
        REPORT | {"total": "many"},
        REPORT | {"nan": 1},
        READY | {"store": ["10.0.0.1"]},
        READY | {"store": ["10.0.0.1", 70000]},
        READY | {"store": ["10.0.0.1", 0]},
        READY | {"store": [1, 4711]},
        READY | {"store": "10.0.0.1:4711"},
        READY | {"reason": None},
        {"type": "on_disk", "step": None},
        {"type": "position", "place": "commit", "line": "fit.py:3", "commits": -1},
        {"type": "drift", "step": 3, "rank": 0.5},
    ],
)
def test_what_cannot_be_is_refused_with_its_field(words: dict[str, Any]) -> None:
    with pytest.raises(BadMessage, match=f"message '{words['type']}': '[a-z]+' must be a valid "):
        from_worker(words)


@pytest.mark.parametrize("words", [{}, {"type": "hello"}, {"type": ["report"]}, {"type": "clear"}])
def test_what_is_not_known_is_nothing(words: dict[str, Any]) -> None:
    assert from_worker(words) is None


def test_what_may_be_left_out_of_a_report_is_filled_in() -> None:
    assert from_worker(REPORT) == from_worker(
        REPORT | {"total": None, "since": 0, "nan": False, "restarted": False, "noise": None}
    )


def test_long_texts_of_scripts_are_cut() -> None:
    for words, field in (
        (READY, "reason"),
        ({"type": "not_on_disk", "step": 3}, "reason"),
        ({"type": "position", "place": "", "line": "", "commits": 0}, "line"),
    ):
        found = from_worker(words | {field: "x" * 50_000})
        assert len(getattr(found, field)) == 300


SPAWN = SpawnWorker(
    worker="t/n1/0/1-1",
    task="t",
    argv=("train.py", "--lr", "0.1"),
    env={"A": "b"},
    cwd="/jobs",
    log="/jobs/log",
    place=GroupPlace(1, 0, 2),
    finish_code=7,
)


LEFT = LeftWorker(
    worker="w",
    task="t",
    slot=1,
    step=3,
    go=GroupPlace(1, 0, 2),
    report=StepReport(1.5, 3, 2, 8, None),
    exit=WorkerExit(-9, "killed", stopped=True),
)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (FROM_MANAGER, SPAWN),
        (TO_PREFORK, SPAWN),
        (FROM_MANAGER, StopWorker("w", 2.5)),
        (FROM_MANAGER, ForgetWorkers("t", "w")),
        (FROM_AGENT, RegisterAgent(node="n", address="a", slots=2, pid=1, workers=(LEFT,))),
        (FROM_AGENT, WorkerExited("w", -9, "killed", finished=True)),
        (FROM_AGENT, PreemptionNotice(3)),
        (FROM_PREFORK, ProcessEnded("w", 1, asked_to_end=True)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_message_is_the_same_after_the_way_through_json(
    table: Mapping[str, type[WireMessage]], message: WireMessage
) -> None:
    assert read_message(table, decode(encode(message.to_dict()))) == message


def test_messages_and_fields_of_later_versions_are_ignored() -> None:
    assert read_message(FROM_MANAGER, {"type": "dance", "worker": "w"}) is None
    assert read_message(FROM_MANAGER, {"type": ["stop"]}) is None
    assert read_message(FROM_MANAGER, {}) is None
    assert read_message(FROM_MANAGER, {"type": "stop", "worker": "w", "politely": True}) == StopWorker("w")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"worker": 3}, "message 'spawn': 'worker' must be a valid str"),
        ({"worker": None}, "message 'spawn': 'worker' must be a valid str"),
        ({"slot": True}, "message 'spawn': 'slot' must be a valid int"),
        ({"slot": 1.0}, "message 'spawn': 'slot' must be a valid int"),
        ({"warm": 1}, "message 'spawn': 'warm' must be a valid bool"),
        ({"argv": "train.py"}, "message 'spawn': 'argv' must be a valid tuple"),
        ({"argv": ["train.py", 3]}, "message 'spawn': 'argv' must be a valid tuple"),
        ({"env": {"A": 3}}, "message 'spawn': 'env' must be a valid dict"),
        ({"place": 3}, "message 'spawn': 'place' must be a valid GroupPlace"),
        ({"finish_code": "7"}, "message 'spawn': 'finish_code' must be a valid int"),
    ],
)
def test_a_field_of_another_kind_is_refused_by_name(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadMessage) as caught:
        read_message(FROM_MANAGER, SPAWN.to_dict() | change)
    assert str(caught.value) == words


def test_a_field_that_is_missing_is_refused_by_name() -> None:
    with pytest.raises(BadMessage, match="message 'exited': 'code' must be a valid int"):
        read_message(FROM_AGENT, {"type": "exited", "worker": "w"})
    with pytest.raises(BadMessage, match="message 'notice': 'grace_s' must be a valid float"):
        read_message(FROM_AGENT, {"type": "notice", "grace_s": "soon"})


def test_a_field_of_a_message_inside_another_one_is_refused_by_name() -> None:
    registers = RegisterAgent(node="n", address="a", slots=2, pid=1, workers=(LEFT,)).to_dict()
    registers["workers"] = [{**LEFT.to_dict(), "slot": "first"}]
    with pytest.raises(BadMessage, match="message 'register': 'workers': 'slot' must be a valid int"):
        read_message(FROM_AGENT, registers)


ADDRESSES = """
ip link set lo up && ip addr add 10.9.9.9/32 dev lo && ip addr add 10.9.9.10/32 dev lo label lo:1 || exit 77
exec "$0" -c 'from bftrain_elastic.wire.network_interfaces import interface_of
print(*map(interface_of, ("127.0.0.1", "127.0.0.2", "10.9.9.9", "10.9.9.10")))'
"""


def test_an_interface_has_all_of_its_addresses() -> None:
    try:
        done = subprocess.run(
            ["unshare", "-rn", "sh", "-c", ADDRESSES, sys.executable], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        if isinstance(error, OSError) or error.returncode == 77 or error.stderr.startswith("unshare:"):
            pytest.skip("no network namespaces here")
        raise
    assert done.stdout == "lo lo lo lo\n"
