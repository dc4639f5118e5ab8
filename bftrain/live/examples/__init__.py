"""Example files: site settings, systemd units, monitoring, and scheduler hooks with @SPOOL@ for the spool folder."""

from __future__ import annotations

import getpass
import re
import socket
import sys
from importlib import resources
from typing import Final

from bftrain.errors import BadInput, suggestion

_SITES: Final = ("slurm", "pbs", "flux", "local", "cluster", "slurm-nodes", "pbs-nodes")
_UNITS: Final = ("systemd-user", "systemd", "systemd-agent")
# Example -> its files in this package, to be joined in this order
_FILES: Final = {
    **{name: (f"examples/{name}.toml", "examples/rest.toml") for name in _SITES},
    **{name: (f"examples/{name}.service",) for name in _UNITS},
    "slurm-hook": ("schedulers/hook_files/slurm.sh",),
    "pbs-hook": ("schedulers/hook_files/pbs_hook.py",),
    "grafana": ("grafana.json",),
    "alerts": ("alerts.yml",),
}

# Placeholder names in the files
_USER: Final = "jane"
_HOST: Final = "login1"
_PYTHONS: Final = ("/home/jane/venv/bin/python", "/opt/bftrain/bin/python")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")


def text(name: str) -> str:
    """Return an example file as it is: for the user jane on the machine login1."""
    if name not in _FILES:
        raise BadInput(f"there is no example '{name}'", where="--example", fix=suggestion(name, _FILES))
    folder = resources.files("bftrain.live")
    return "".join(folder.joinpath(file).read_text(encoding="utf-8") for file in _FILES[name])


def for_us(name: str) -> str:
    """Return an example for the user: with their name, this machine's and this Python's in place of the file's."""
    given = text(name)
    for python in _PYTHONS:
        given = given.replace(python, sys.executable)
    user = getpass.getuser()
    if _PLAIN.fullmatch(user):  # no characters that need quoting or that schedulers reject
        given = given.replace(f'"{_USER}"', f'"{user}"').replace(f"bftrain-{_USER}", f"bftrain-{user}")
    return re.sub(rf"\b{_HOST}\b", socket.gethostname().partition(".")[0] or _HOST, given)
