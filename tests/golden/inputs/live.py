"""Run two tasks live on slots of this machine, and write what the API answers, without what a clock determines."""

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

import bftrain

Path("site.toml").write_text(
    'name = "golden"\nfolder = "shared"\nstate = "state"\nlauncher = "process"\n'
    '[scheduler]\nname = "local"\nnodes = 3\n[agents]\npreload = []\n'
)
answers = Path("answers")
answers.mkdir()
daemon = subprocess.Popen([sys.executable, "-m", "bftrain", "live", "--config", "site.toml", "-q"])


def until(true: Callable[[], bool], patience_s: float = 120.0) -> None:
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline
        assert daemon.poll() is None
        time.sleep(0.05)


def get(page: str) -> tuple[int, str]:
    """Return the status and the text of an address of the API."""
    http = HTTPConnection("localhost")
    http.sock = socket.socket(socket.AF_UNIX)
    http.sock.connect("state/api.sock")
    http.request("GET", page)
    answer = http.getresponse()
    return answer.status, answer.read().decode()


def without_clock(value: object, key: str = "") -> object:
    """Return an answer in which measured numbers, times and texts of the machine are their types."""
    if isinstance(value, dict):
        return {name: without_clock(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(without_clock(one, key)) for one in value})
    kept = {"state", "launcher", "scheduler", "objective", "solver", "min_nodes", "max_nodes", "kind"}
    return value if key in kept or isinstance(value, bool) or value is None else type(value).__name__


try:
    until(Path("state/api.sock").exists)
    client = bftrain.Client("state/api.sock")
    for name, words in (("short", ("true",)), ("long", ("sleep", "600"))):
        client.submit(
            bftrain.Submission(run=bftrain.Run(argv=words, cwd=str(Path.cwd())), name=name, min_nodes=1, max_nodes=1)
        )
    until(lambda: client.task("short").state == "done" and client.task("long").state == "running")
    until(lambda: all(node.agent for node in client.nodes()))
    for page in ("status", "tasks", "tasks/short", "nodes"):
        status, answer = get(f"/v1/{page}")
        content = [status, without_clock(json.loads(answer))]
        (answers / f"{page.replace('/', '-')}.txt").write_text(json.dumps(content, indent=1, sort_keys=True))
    lines = get("/metrics")[1].splitlines()
    values = [line.rpartition(" ")[0] for line in lines if line[:1] != "#"]
    series = {re.sub(r'(version|code)="[^"]*"', "...", value) for value in values}
    about = [line for line in lines if line.startswith("#")]
    (answers / "metrics.txt").write_text("\n".join([*about, *sorted(series)]))
    client.change("long", "cancel")
finally:
    daemon.terminate()
    daemon.wait(60)
