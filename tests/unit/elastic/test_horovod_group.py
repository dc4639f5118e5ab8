"""Where a Horovod group meets: what its members find there, and who can come."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from types import SimpleNamespace

import pytest

from bftrain_elastic.worker import horovod_group
from bftrain_elastic.worker.horovod_group import HorovodRendezvous, NotAllCame, host_name, wait_for_members


@pytest.fixture
def meeting() -> Iterator[HorovodRendezvous]:
    point = HorovodRendezvous("127.0.0.1")
    yield point
    point.close()


def ask(
    meeting: HorovodRendezvous, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes]:
    connection = HTTPConnection(meeting.host, meeting.port, timeout=10)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    said = answer.status, answer.read()
    connection.close()
    return said


def test_what_one_member_leaves_another_finds(meeting: HorovodRendezvous) -> None:
    assert ask(meeting, "GET", "/global/0") == (404, b"")
    assert ask(meeting, "PUT", "/global/0", b"\x00\xffaddress") == (200, b"")
    assert ask(meeting, "GET", "/global/0") == (200, b"\x00\xffaddress")
    assert ask(meeting, "GET", "/cross_0/0") == (404, b"")
    assert ask(meeting, "DELETE", "/global/0") == (200, b"")


def test_a_member_learns_its_place_from_the_name_of_its_host(meeting: HorovodRendezvous) -> None:
    assert ask(meeting, "GET", f"/rank_and_size/{host_name(2, 5)}:0") == (200, b"2,5,0,1,2,5")
    assert ask(meeting, "GET", "/rank_and_size/node7:0") == (404, b"")


def test_what_is_too_long_is_not_kept(meeting: HorovodRendezvous) -> None:
    assert ask(meeting, "PUT", "/global/1", b"", **{"Content-Length": str(1 << 20)})[0] == 413
    assert ask(meeting, "PUT", "/global/1", b"", **{"Content-Length": "-1"})[0] == 413
    assert ask(meeting, "GET", "/global/1")[0] == 404


def test_no_member_waits_at_a_cancelled_meeting(meeting: HorovodRendezvous) -> None:
    ask(meeting, "PUT", "/global/0", b"address")
    meeting.refusing = True
    assert ask(meeting, "GET", "/global/0") == (410, b"")


def test_it_listens_at_the_given_address_and_only_until_it_is_closed() -> None:
    meeting = HorovodRendezvous("127.0.0.2")
    assert ask(meeting, "GET", "/global/0")[0] == 404
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", meeting.port), timeout=5)
    meeting.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", meeting.port), timeout=5)


def test_a_silent_connection_blocks_no_member(meeting: HorovodRendezvous) -> None:
    with socket.create_connection((meeting.host, meeting.port), timeout=5):
        assert ask(meeting, "GET", "/global/0")[0] == 404


def test_members_wait_until_all_are_there(meeting: HorovodRendezvous) -> None:
    place = (meeting.host, meeting.port)
    with ThreadPoolExecutor(3) as pool:
        first = [pool.submit(wait_for_members, place, rank, 3, 30.0, lambda: False) for rank in (0, 2)]
        time.sleep(0.1)
        assert not any(one.done() for one in first)
        last = pool.submit(wait_for_members, place, 1, 3, 30.0, lambda: False)
        for one in (*first, last):
            one.result(30)


def test_members_do_not_wait_for_one_that_does_not_come(meeting: HorovodRendezvous) -> None:
    place = (meeting.host, meeting.port)
    with pytest.raises(NotAllCame, match="not all 2 came"):
        wait_for_members(place, 0, 2, 0.2, lambda: False)
    with pytest.raises(NotAllCame):
        wait_for_members(place, 0, 2, 60.0, lambda: True)
    meeting.refusing = True
    with pytest.raises(NotAllCame, match="a member is dead"):
        wait_for_members(place, 0, 2, 60.0, lambda: False)
    meeting.close()
    with pytest.raises(NotAllCame):
        wait_for_members(place, 0, 2, 0.2, lambda: False)


def test_members_of_large_groups_ask_less_often(meeting: HorovodRendezvous, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(horovod_group, "time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic))
    for workers in (2, 40, 1000):
        gave_up = iter([False, True])
        with pytest.raises(NotAllCame):
            wait_for_members((meeting.host, meeting.port), 0, workers, 30.0, lambda answers=gave_up: next(answers))
    assert pauses == [0.005, 0.1, 0.25]


def test_an_abort_that_comes_after_a_group_was_left_does_not_end_the_next_one() -> None:
    group = horovod_group.HorovodGroup("127.0.0.1")
    group.abort()
    host, port = group.meeting.host, group.meeting.port
    wait_for_members((host, port), 0, 1, 5.0, lambda: False)
    group.close()
