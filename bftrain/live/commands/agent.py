"""The command that adds this machine to a cluster without a batch scheduler: an agent that stays."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results
from bftrain.errors import BadInput, NotAvailable, UsageError
from bftrain_elastic.errors import ElasticError

_QUERY: Final = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
_GRACE_S: Final = "10"  # time for tasks to save or shrink after SIGTERM
_QUERY_S: Final = 20.0  # the driver may initialize first
_MAKERS: Final = frozenset({"nvidia", "tesla", "geforce", "quadro"})
_VARIANT: Final = re.compile(r"\d+gb|sxm\d*|pcie|hbm\w*|nvl")  # memory size or connector: the name ends here
_NO_GPU, _UNKNOWN_GPU = "cpu", "gpu"


@click.command(
    cls=DocumentedCommand,
    example="bftrain agent --manager head:7411\nbftrain agent --manager head:7411 --kind v100 --gpus 4",
    epilog="The agent waits while the live run is down. On SIGTERM tasks save or move for up to ten seconds. As a "
    "service: bftrain live --example systemd-agent. docs/how-to/live.md shows the first steps.",
)
@click.option(
    "--manager", metavar="HOST:PORT", required=True, help="Address of the live run ([agents] of its settings)."
)
@click.option(
    "--secret", type=click.Path(path_type=Path), help="Its secret, or a copy of mode 0600 [the default live run's]."
)
@click.option("--name", help="Name of this node [host name].")
@click.option("--kind", help="Kind of this node [name of its GPUs, or cpu].")
@click.option("--gpus", type=click.IntRange(1), help="GPUs to use, one for each worker [all; one worker without GPUs].")
@prints_results
def command(
    manager: str, secret: Path | None, name: str | None, kind: str | None, gpus: int | None, out: Output
) -> None:
    """Add this machine as a node to a live run without a batch scheduler.

    The node leaves when the agent ends. Settings of the live run: bftrain live --example cluster.
    """
    from bftrain.live.model.site_config import default_state
    from bftrain_elastic.agent.agent_settings import AgentSettings, command_line

    name = socket.gethostname() if name is None else name
    if not re.fullmatch(r"[\w.-]+", name):
        raise UsageError("must be a word of letters, digits, '.', '_' and '-'", where="--name")
    kind = _detected_kind() if kind is None else kind
    if not kind or not kind.isprintable() or kind != kind.strip():
        raise UsageError("must be printable text without surrounding blanks", where="--kind")
    secret = default_state() / "secret" if secret is None else secret
    words = ["--manager", manager, "--secret", str(secret), "--node", name, "--kind", kind, "--address", "auto"]
    words += ["--slots", str(gpus or 0), "--patience", "inf", "--grace", _GRACE_S]
    try:
        AgentSettings.read(command_line(""), words)
    except ElasticError as error:
        raise BadInput(error.what, where=error.where, fix=error.fix) from error
    out.say(f"node {name}, kind {kind}: connecting to {manager}")
    os.umask(0o077)
    sys.stdout.flush()
    sys.stderr.flush()
    # The agent forks its workers, so it must not be this process, which has imported a command line
    os.execv(sys.executable, [sys.executable, "-m", "bftrain_elastic.agent", *words])  # noqa: S606 - no shell


def _detected_kind() -> str:
    """Return the kind of this machine: ``a100`` for "NVIDIA A100-SXM4-80GB", or ``cpu``."""
    from bftrain_elastic.agent.agent_settings import visible_gpus

    if not visible_gpus():
        return _NO_GPU
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_QUERY_S, check=True)  # noqa: S603 - fixed
    except (OSError, subprocess.SubprocessError):
        return _UNKNOWN_GPU
    kinds = sorted({_kind_of_gpu(line) for line in done.stdout.splitlines() if line.strip()})
    if len(kinds) > 1:
        fix = "pass --kind, or start one agent per kind: CUDA_VISIBLE_DEVICES=0,1 bftrain agent --name NODE --kind KIND"
        raise NotAvailable(f"this machine has GPUs of several kinds: {', '.join(kinds)}", fix=fix)
    return kinds[0] if kinds else _UNKNOWN_GPU


def _kind_of_gpu(name: str) -> str:
    kept: list[str] = []
    for word in re.findall(r"\w+", name.lower()):
        if _VARIANT.fullmatch(word):
            break
        if word not in _MAKERS:
            kept.append(word)
    return "-".join(kept) or _UNKNOWN_GPU
