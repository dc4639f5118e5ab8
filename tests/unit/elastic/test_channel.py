"""The socket between a worker and its agent is found wherever temporary files are kept."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from bftrain_elastic.channel import Channel, reachable

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("depth", [1, 30])
def test_a_path_may_be_longer_than_the_kernel_takes(tmp_path: Path, depth: int) -> None:
    folder = tmp_path.joinpath(*["scratch"] * depth)
    folder.mkdir(parents=True)
    path = str(folder / "agent")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        with reachable(path) as name:
            assert len(name) < 108
            door.bind(name)
        door.listen()
        channel = Channel(path, "w1")
        guest, _ = door.accept()
        with guest:
            assert json.loads(guest.recv(1000)) == {"say": "hello", "worker": "w1"}
        channel.close()
