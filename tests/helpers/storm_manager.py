"""A manager of one task in a process of its own, for storms: it can be killed, stopped, and replaced by a later one.

It reads its settings as the first line of JSON, prints the messages that it receives as JSON lines, and carries out
what it reads after that: each line is a list of actions. It ends when its input does, and all training with it.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any, Final

from bftrain import registry
from bftrain_elastic.manager.agent_hub import AgentHub
from bftrain_elastic.wire.authenticated_stream import read_secret

TASK: Final = "task"
_REUNION_S: Final = 8.0


def main() -> None:
    """Manage the task until the input ends."""
    given = json.loads(sys.stdin.readline())
    missing = set(given["held"])
    all_registered = threading.Event()

    def tell(message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
        if message["type"] == "registered":
            missing.discard(message["node"])
            if not missing:
                all_registered.set()

    # Closed until it is known what the task holds: so workers of a manager before us are recognised
    secret = read_secret(Path(given["secret"]))
    hub = AgentHub(tell, secret, port=given["port"], closed=True, epoch=given["epoch"])
    launcher = registry.load("launcher", given["launcher"])(tell, hub)
    launcher.add(TASK, given["job"])
    if given["held"]:
        hub.hold_workers()
        launcher.apply([{"action": "start", "task": TASK, "nodes": given["held"]}])
    hub.open()
    threading.Thread(target=_begin, args=(hub, all_registered), daemon=True).start()
    for line in sys.stdin:
        launcher.apply(json.loads(line))
    launcher.close()
    hub.close()


def _begin(hub: AgentHub, all_registered: threading.Event) -> None:
    all_registered.wait(_REUNION_S)
    hub.start_workers()


if __name__ == "__main__":
    main()
