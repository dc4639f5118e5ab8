"""Slurm's commands as scripts that print the content of a file: all pilots run, on any number of nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bftrain.nodesets import fold

_SAYS: Final = {
    "squeue": 'case "$*" in *--start*) ;; *) exec cat "{folder}/pilots" ;; esac',
    "sinfo": "",
    "sbatch": 'case "$*" in *--test-only*) ;; *) echo 999999; echo "$*" >>"{folder}/submitted" ;; esac',
    "scancel": 'echo "$*" >>"{folder}/cancelled"',
    "scontrol": """case "$2" in
config) echo "ClusterName             = fake"
echo "PreemptMode             = CANCEL"
echo "PreemptType             = preempt/partition_prio" ;;
partition) echo "PartitionName=pilot State=UP GraceTime=0 MaxTime=UNLIMITED PreemptMode=CANCEL Nodes={nodes}"
echo "PartitionName=main Default=YES PriorityTier=2 Nodes={nodes}" ;;
esac""",
}


def fake_slurm(folder: Path, site: str, nodes: list[str]) -> Path:
    """Write the commands into a folder, which is returned for PATH; a pilot runs on each of ``nodes``."""
    programs = folder / "slurm"
    programs.mkdir()
    lines = [f"{n}|{n}|RUNNING|1700000000|N/A|bftrain-{site}|{node}|None" for n, node in enumerate(nodes, 1)]
    (programs / "pilots").write_text("\n".join(lines) + "\n")
    for name, says in _SAYS.items():
        script = programs / name
        script.write_text("#!/bin/sh\n" + says.replace("{folder}", str(programs)).replace("{nodes}", fold(nodes)))
        script.chmod(0o755)
    return programs
