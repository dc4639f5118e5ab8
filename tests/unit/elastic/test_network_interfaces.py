"""The interface that has an address, as the system itself shows it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess

import pytest

from bftrain_elastic.errors import NoInterface
from bftrain_elastic.wire.network_interfaces import interface_of, networking, towards
from bftrain_elastic.worker import process_groups


def shown() -> list[tuple[str, str]]:
    """Return what ``ip address`` shows: pairs of an interface and an IPv4 address."""
    if shutil.which("ip") is None:
        return [("lo", "127.0.0.1")]
    said = subprocess.run(["ip", "-4", "-json", "address"], capture_output=True, check=True).stdout
    return [(one["ifname"], info["local"]) for one in json.loads(said) for info in one["addr_info"]]


@pytest.mark.parametrize(("name", "address"), shown())
def test_every_address_of_this_machine_is_found(name: str, address: str) -> None:
    assert interface_of(address) == name


@pytest.mark.parametrize("address", ["127.0.0.1", "127.4.5.6", "localhost"])
def test_loopback_has_many(address: str) -> None:
    assert networking(address) == {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "=lo"}


@pytest.mark.parametrize("address", ["192.0.2.77", "no.such.host.invalid"])
def test_an_address_of_no_interface_is_refused_so_that_nothing_listens_anywhere(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    def resolve(name: str) -> str:
        if name != "192.0.2.77":
            raise socket.gaierror(-2, "Name or service not known")
        return name

    monkeypatch.setattr(socket, "gethostbyname", resolve)
    with pytest.raises(NoInterface, match=address):
        interface_of(address)
    monkeypatch.setattr(os, "environ", {})
    with pytest.raises(NoInterface):
        process_groups.listen_on(address)
    assert os.environ == {}


@pytest.mark.parametrize(("_", "address"), shown())
def test_the_address_towards_ourselves_is_one_of_ours(_: str, address: str) -> None:
    assert towards(address) in {ours for _, ours in shown()}
    assert towards("localhost") == "127.0.0.1"


def test_without_a_reachable_host_there_is_no_address() -> None:
    with pytest.raises(NoInterface, match="cannot be reached"):
        towards("256.256.256.256")
