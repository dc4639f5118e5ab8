"""What goes over a connection: lines that prove the secret, of limited length; and the file that holds it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from bftrain_elastic.errors import BadMessage, BadSecret
from bftrain_elastic.wire.authenticated_stream import AuthenticatedStream, make_secret, read_secret
from bftrain_elastic.wire.messages import LINE_LIMIT, MessageLines, decode, encode, text_of, whole_of

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
    with pytest.raises(BadMessage, match="before the other side has greeted"):
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


def test_fields_are_what_they_should_be() -> None:
    message = {"type": "x", "name": "n", "count": 3, "yes": True}
    assert (text_of(message, "name"), whole_of(message, "count")) == ("n", 3)
    for read, field in ((text_of, "count"), (whole_of, "yes"), (whole_of, "name"), (text_of, "no")):
        with pytest.raises(BadMessage, match=f"'{field}' must be"):
            read(message, field)


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
