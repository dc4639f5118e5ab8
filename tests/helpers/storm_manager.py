"""A manager of one task in a process of its own, for storms: it can be killed, stopped, and replaced by a later one.

It reads its settings as the first line of JSON, prints what it is told as JSON lines, and carries out what it reads
after that: each line is a list of actions. It ends when its input does, and all training with it.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any, Final

from bftrain import registry
from bftrain_elastic.manager.agent_hub import AgentHub
from bftrain_elastic.wire.shared_secret import read_secret

TASK: Final = "task"
_REUNION_S: Final = 8.0


def main() -> None:
    """Manage the task until the input ends."""
    given = json.loads(sys.stdin.readline())
    missing = set(given["held"])
    everybody_there = threading.Event()

    def tell(told: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        if told["type"] == "registered":
            missing.discard(told["node"])
            if not missing:
                everybody_there.set()

    # Closed until it is known what the task holds: so workers of a manager before us are recognised
    secret = read_secret(Path(given["secret"]))
    hub = AgentHub(tell, secret, port=given["port"], closed=True, epoch=given["epoch"])
    launcher = registry.load("launcher", given["launcher"])(tell, hub)
    launcher.add(TASK, given["job"])
    if given["held"]:
        hub.hold_workers()
        launcher.apply([{"action": "start", "task": TASK, "nodes": given["held"]}])
    hub.open()
    threading.Thread(target=_begin, args=(hub, everybody_there), daemon=True).start()
    for line in sys.stdin:
        launcher.apply(json.loads(line))
    launcher.close()
    hub.close()


def _begin(hub: AgentHub, everybody_there: threading.Event) -> None:
    everybody_there.wait(_REUNION_S)
    hub.start_workers()


if __name__ == "__main__":
    main()
