"""Example files: site settings, systemd units, monitoring, and scheduler hooks with @SPOOL@ for the spool folder."""

from __future__ import annotations

import getpass
import re
import socket
import sys
from importlib import resources
from typing import Final

from bftrain.errors import BadInput, suggestion

SITES: Final = ("slurm", "pbs", "flux", "local", "cluster", "slurm-nodes", "pbs-nodes")
UNITS: Final = ("systemd-user", "systemd", "systemd-agent")
HOOKS: Final = {"slurm-hook": "slurm.sh", "pbs-hook": "pbs_hook.py"}
MONITORING: Final = {"grafana": "grafana.json", "alerts": "alerts.yml"}
NAMES: Final = (*SITES, *UNITS, *HOOKS, *MONITORING)
_HOOK_FILES: Final = "bftrain.live.schedulers.hook_files"

# Placeholder names in the files
_USER: Final = "jane"
_HOST: Final = "login1"
_PYTHONS: Final = ("/home/jane/venv/bin/python", "/opt/bftrain/bin/python")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")


def text(name: str) -> str:
    """Return an example file as it is: for the user jane on the machine login1."""
    if name not in NAMES:
        raise BadInput(f"there is no example '{name}'", where="--example", fix=suggestion(name, NAMES))
    if name in MONITORING:
        return resources.files("bftrain.live").joinpath(MONITORING[name]).read_text(encoding="utf-8")
    if name in HOOKS:
        return resources.files(_HOOK_FILES).joinpath(HOOKS[name]).read_text(encoding="utf-8")
    folder = resources.files(__name__)
    if name in UNITS:
        return folder.joinpath(f"{name}.service").read_text(encoding="utf-8")
    return "".join(folder.joinpath(f"{part}.toml").read_text(encoding="utf-8") for part in (name, "rest"))


def for_us(name: str) -> str:
    """Return an example for the user: with their name, this machine's and this Python's in place of the file's."""
    given = text(name)
    for python in _PYTHONS:
        given = given.replace(python, sys.executable)
    user = getpass.getuser()
    if _PLAIN.fullmatch(user):  # no characters that need quoting or that schedulers reject
        given = given.replace(f'"{_USER}"', f'"{user}"').replace(f"bftrain-{_USER}", f"bftrain-{user}")
    return re.sub(rf"\b{_HOST}\b", socket.gethostname().partition(".")[0] or _HOST, given)
