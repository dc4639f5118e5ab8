"""The PBS of the tests: a command that is killed before its answer is no fault of the server."""

from __future__ import annotations

import json
import socket

from tests.helpers.fake_pbs import FakePbs


def test_a_command_that_is_gone_before_its_answer_is_no_fault() -> None:
    with FakePbs("n1") as pbs:
        command, server = socket.socketpair()
        command.sendall(json.dumps(["qstat", ["-f"], ""]).encode() + b"\n")
        command.close()
        pbs.answer(server)  # raises nothing
        assert [name for name, *_ in pbs.asked] == ["qstat"]
