"""Process groups: workers of releases that send states in another way do not meet."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest

from bftrain_elastic.worker import process_groups
from bftrain_elastic.worker.process_groups import GroupRank, ProcessGroup, lost

pytestmark = pytest.mark.torch
# A member of a release that sends the state along a chain, as rank 1
EARLIER = """
import sys
from datetime import timedelta
import torch.distributed as dist
store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False, wait_for_workers=False)
try:
    store = dist.PrefixStore("bftrain/7", store)
    dist.init_process_group("gloo", store=store, rank=1, world_size=2, timeout=timedelta(seconds=5))
except RuntimeError:
    print("alone")
else:
    print("met")
"""


def test_a_worker_of_an_earlier_release_is_not_met(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist

    monkeypatch.setattr(process_groups, "FORMING", timedelta(seconds=8))
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with subprocess.Popen([sys.executable, "-c", EARLIER, str(store.port)], stdout=subprocess.PIPE, text=True) as other:
        group = ProcessGroup()
        try:
            with pytest.raises(RuntimeError) as caught:
                group.join(GroupRank(7, 0, 2, 2), store)
        finally:
            group.leave(broken=True)
        assert other.communicate(timeout=60)[0] == "alone\n"
    assert lost(caught.value), "so the training goes on without it"


@pytest.mark.horovod
def test_a_member_of_horovod_does_not_wait_for_a_dead_first_one() -> None:
    from bftrain_elastic.worker.horovod_training import HorovodGroup, HorovodInternalError

    with socket.create_server(("127.0.0.1", 0)) as first:
        address = first.getsockname()
    group = HorovodGroup("127.0.0.1")
    threading.Timer(0.5, group.abort).start()
    began = time.monotonic()
    with pytest.raises(HorovodInternalError, match="not all of them arrived"):
        group.form(GroupRank(2, 1, 2, 2), address, lambda: None)
    assert time.monotonic() - began < process_groups.FORMING.total_seconds() / 2
