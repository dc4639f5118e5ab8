"""GPUs of shared nodes in Slurm: each pilot asks for one GPU, and its place is a slot such as ``n1/gpu3``.

Slurm itself starts such pilots on GPUs that other jobs of a node leave idle, and preempts as many of them as a job asks
for. Only the number of a pilot's GPU is not in its lists of jobs, so that it is queried once for each pilot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from bftrain.errors import BadConfig, NotAvailable
from bftrain.live.schedulers.pilot_backend import Command, Run
from bftrain.node_units import GPU, slot_name

ONE_GPU: Final = "--gres=gpu:1"
FIND_SLOT: Final = "node=$SLURMD_NODENAME-gpu$SLURM_JOB_GPUS"  # the name of its log
SLOT_WORDS: Final = {"node": '"$SLURMD_NODENAME/gpu$SLURM_JOB_GPUS"', "host": '"$SLURMD_NODENAME"'}
CHECK_SLOT: Final = """\
case $SLURM_JOB_GPUS in
''|*[!0-9]*) echo "SLURM_JOB_GPUS='$SLURM_JOB_GPUS' is not one GPU: does gres.conf name their files?"; exit 64 ;;
esac
"""
_ASKED: Final = re.compile(r"--(?:gres=(?:.*,)?gpu|gpus-per-node=|gpus=)(?::?[A-Za-z_][\w-]*)?:?(\d+)?(?:,.*)?")
_COUNT: Final = re.compile(r"(?:^|,)gpu(?::[A-Za-z_][\w.-]*)?:(\d+)")
_JOB: Final = re.compile(r"\bJobId=(\d+) .*? Nodes=(\S+) .*?\bGRES=\S*?\bgpu[:\w.-]*\(IDX:(\d+)\)")
_MOST_REQUESTS: Final = 32  # to the controller, which works for milliseconds on each
_SHARED_STATES: Final = frozenset({"idle", "mix"})  # of nodes that may start one more job
_ROW: Final = "NodeList:256|,StateCompact:32|,Gres:512|,GresUsed:512"


def gpus_asked(options: Iterable[str]) -> float:
    """Return the GPUs that options of sbatch ask for, such as ``--gres=gpu:4``; 0 if they ask for none."""
    return max((float(one[1] or 1) for one in filter(None, map(_ASKED.fullmatch, options))), default=0.0)


def check_options(options: Iterable[str]) -> None:
    """Raise if options of sbatch contradict pilots of one GPU each."""
    if (gpus := gpus_asked(options)) > 1:
        what = f'asks for {gpus:g} GPUs, and with unit = "gpu" each pilot has one'
        raise BadConfig(what, where="[scheduler] options", fix='leave it out, or say "--gres=gpu:TYPE:1"')
    if any(option.startswith("--exclusive") for option in options):
        what = '--exclusive asks for whole nodes, against unit = "gpu"'
        raise BadConfig(what, where="[scheduler] options", fix="leave one of them out")


async def check_gpus(run: Run, config: Mapping[str, str], name: str, partition: Mapping[str, str]) -> None:
    """Raise if Slurm cannot hand out single GPUs of the nodes of a partition."""
    types, select = (config.get(key, "").strip() for key in ("GresTypes", "SelectType"))
    where, fix = f"partition '{name}'" if name else "Slurm", 'leave out unit = "gpu", for whole nodes'
    if GPU not in types.split(","):
        raise NotAvailable(f"Slurm knows no GPUs: GresTypes={types or '(null)'}", where=where, fix=fix)
    if select == "select/linear" or partition.get("OverSubscribe") == "EXCLUSIVE":
        setting = f"SelectType={select}" if select == "select/linear" else "OverSubscribe=EXCLUSIVE"
        raise NotAvailable(f"jobs get whole nodes there, not single GPUs: {setting}", where=where, fix=fix)
    if not any(total for _, _, total, _ in _nodes(await run(node_gpus(name)))):
        raise NotAvailable("no node has GPUs there", where=where, fix=f"{fix}; sinfo --Format=NodeList,Gres shows them")


def node_gpus(partition: str) -> Command:
    """Build the command that lists each node's state, GPUs and allocated GPUs, one node a line."""
    where = (f"--partition={partition}",) if partition else ()
    return Command(argv=("sinfo", "--noheader", "--Node", "--responding", *where, f"--Format={_ROW}"))


def read_idle_gpus(said: str) -> frozenset[str]:
    """Parse as many slots as there are idle GPUs on nodes that may start jobs.

    Slurm may not say which GPUs of a node are allocated, so the numbers begin behind the number of those.
    """
    return frozenset(
        slot_name(node, GPU, number)
        for node, state, total, used in _nodes(said)
        if state in _SHARED_STATES
        for number in range(used, total)
    )


def _nodes(said: str) -> Sequence[tuple[str, str, int, int]]:
    """Return name, state, GPUs and allocated GPUs of each node."""
    rows = ([part.strip() for part in line.split("|")] for line in said.splitlines())
    return [(row[0], row[1], _count(row[2]), _count(row[3])) for row in rows if len(row) == _ROW.count(",") + 1]


def _count(gres: str) -> int:
    """Return the GPUs in a list such as ``gpu:a100:3(IDX:0,2-3),mps:0``."""
    return sum(map(int, _COUNT.findall(gres)))


def job_details(numbers: Sequence[str]) -> Command:
    """Build the command that describes jobs with their GPUs, one a line; many jobs by one request for all."""
    argv = ("scontrol", "--details", "--oneliner")
    if len(numbers) > _MOST_REQUESTS:
        return Command(argv=(*argv, "show", "job"))
    return Command(argv=argv, stdin="".join(f"show job {number}\n" for number in numbers))


def read_slots(said: str) -> dict[str, str]:
    """Parse the slot of each job that holds one GPU, by the job's number."""
    found = (_JOB.search(line) for line in said.splitlines())
    return {one[1]: slot_name(one[2], GPU, int(one[3])) for one in found if one}
