"""The job that a pilot is: it becomes the agent, so that signals reach the agent itself."""

from __future__ import annotations

import shlex
from typing import Final

from bftrain.live.schedulers.pilot_backend import log_folder
from bftrain.live.schedulers.port import AgentOrder, Site

_SCRIPT: Final = """\
#!/bin/sh
# A pilot of bftrain: it holds one idle node until the scheduler wants it back.
umask 077
{find_node}
case $node in ''|*/*) exit 64 ;; esac
exec >>{folder}/"$node".log 2>&1 </dev/null
exec {start}{command}
"""


def pilot_script(order: AgentOrder, site: Site, find_node: str, start: str = "") -> str:
    """Write the job; ``find_node`` is a line of sh that sets ``$node`` to the name of the node it runs on.

    ``start`` is a command of the scheduler that starts the agent, if it must not be started by the job itself.
    """
    command = " ".join(map(_word, order.argv))
    folder = shlex.quote(str(log_folder(site)))
    return _SCRIPT.format(find_node=find_node, folder=folder, start=start and f"{start} ", command=command)


def _word(word: str) -> str:
    """Quote a word for sh, with the node's name in place of ``{node}``."""
    return '"$node"'.join(shlex.quote(part) if part else "" for part in word.split("{node}")) or "''"
