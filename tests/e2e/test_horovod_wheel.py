"""The Horovod that `make horovod` built: three processes reduce over Gloo, on loopback and nowhere else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from tests.helpers.sessions import alive_in_session

pytestmark = pytest.mark.horovod

SIZE = 3

WORKER = textwrap.dedent("""
    import json, psutil, torch
    import horovod.torch as hvd
    import horovod.torch.elastic
    from horovod.runner.elastic.driver import ElasticDriver

    hvd.init()
    # A process set has a Gloo context of its own, on the interface that one of our edits is about
    pair = hvd.add_process_set([0, 1])
    of_all = hvd.allreduce(torch.full((1000,), hvd.rank() + 1.0), op=hvd.Sum)
    two = hvd.allreduce(torch.ones(10), op=hvd.Sum, process_set=pair) if pair.included() else torch.zeros(10)
    listening = [c.laddr.ip for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN]
    said = {"rank": hvd.rank(), "size": hvd.size(), "sum": of_all.unique().tolist(), "pair": two.unique().tolist()}
    print(json.dumps(said | {"listening": listening, "elastic": hasattr(hvd.elastic, "run")}), flush=True)
    hvd.allreduce(torch.zeros(1), name="done")  # a rank that ends sooner breaks what others still add up
    hvd.shutdown()
""")

# Where the processes of a group tell each other their addresses
MEETING_POINT = textwrap.dedent("""
    import sys, threading
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    server = RendezvousHTTPServer(("127.0.0.1", 0), RendezvousHandler, 0)
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
""")


def group(port: int, session: Path) -> list[subprocess.Popen[str]]:
    """Start the workers of one group, each on a node of its own."""
    common = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_IFACE": "lo",
        "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
        "HOROVOD_SIZE": str(SIZE),
        "HOROVOD_CROSS_SIZE": str(SIZE),
        "OMP_NUM_THREADS": "1",
    }
    script = session / "worker.py"
    script.write_text(WORKER)
    return [
        subprocess.Popen(
            [sys.executable, script],
            env={
                **os.environ,
                **common,
                "HOROVOD_HOSTNAME": f"node{rank}",
                "HOROVOD_RANK": str(rank),
                "HOROVOD_CROSS_RANK": str(rank),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for rank in range(SIZE)
    ]


def test_three_processes_sum_over_gloo_on_loopback_only(tmp_path: Path) -> None:
    meeting = subprocess.Popen(
        [sys.executable, "-c", MEETING_POINT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with meeting:
        assert meeting.stdout is not None
        workers = group(int(meeting.stdout.readline()), tmp_path)
        patience = threading.Timer(60, lambda: [os.killpg(worker.pid, signal.SIGKILL) for worker in workers])
        patience.start()
        try:
            said = [worker.communicate()[0] for worker in workers]
        finally:
            patience.cancel()
            meeting.communicate("")
    assert [worker.returncode for worker in workers] == [0] * SIZE, "\n".join(said)
    results = [json.loads(text.splitlines()[-1]) for text in said]
    assert [(line["rank"], line["size"], line["sum"]) for line in results] == [(rank, 3, [6.0]) for rank in range(SIZE)]
    assert [line["pair"] for line in results] == [[2.0], [2.0], [0.0]]
    assert all(line["elastic"] for line in results)
    assert {address for line in results for address in line["listening"]} <= {"127.0.0.1"}
    assert not [worker for worker in workers if alive_in_session(worker.pid)], "something that they started is left"
