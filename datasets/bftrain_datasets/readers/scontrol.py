"""Reader of Slurm's jobs as printed by ``scontrol show job``: ``Key=value`` in paragraphs, or with ``-o`` in lines."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from bftrain.node_units import GPU, NODE
from bftrain_datasets.importing.job_checks import RUNNING, RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import (
    LONGEST_RECORD,
    count_of,
    first_lines,
    moment_of,
    moments,
    nodes_of,
    paragraphs,
    units_in,
)

name: Final = "scontrol"
about: Final = "Slurm: jobs as scontrol show job prints them, in paragraphs or lines"

tells_units: Final = True
KEYS: Final = ("JobId", "JobState", "StartTime", "EndTime", "NodeList", "NumNodes", "Partition")
HEAD: Final = re.compile(r"JobId=\d\S* (?:(?:Array|Het|Pack)JobId=\S+ .*)?JobName=")
UNFINISHED: Final = ("RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT")
_STATE: Final = re.compile(r" JobState=[A-Z_]+ Reason=")  # keys before it may be part of the job's name
_VALUES: Final = re.compile(rf" ({'|'.join(KEYS[2:])})=(\S*)")

_ON_NODES: Final = re.compile(r" Nodes=(\S+) CPU_IDs=(\S*) Mem=\S*(?: GRES(?:_IDX)?=(\S*))?")  # with -d
_GPUS: Final = re.compile(r"(?:\A|,)(?:gres/)?gpu(?::[^:(,]*[^\d:(,][^:(,]*)?(?::(\d+))?(?:\(IDX:([\d,-]+)\))?")
_TRES: Final = re.compile(r" (?:AllocTRES|TRES)=(\S*)")
_CPUS: Final = re.compile(r" NumCPUs=(\d+)")


def recognises(head: bytes) -> bool:
    """Return whether one of the first lines begins a job, and its state follows."""
    lines = first_lines(head)
    first = next((place for place, line in enumerate(lines) if HEAD.match(line)), len(lines))
    return bool(_STATE.search(" ".join(" ".join(lines[first : first + LONGEST_RECORD]).split())))


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every job."""
    for number, text in paragraphs(file.lines(), HEAD, intake):
        intake.row(number)
        _add_job(text, intake)


def _add_job(text: str, intake: RecordIntake) -> None:
    begin = _STATE.search(text)
    if begin is None:
        intake.set_aside("malformed")
        return
    state = text[begin.start() :].partition("=")[2].partition(" ")[0]
    values = dict(reversed(_VALUES.findall(text, begin.start())))  # the first of each, because users' texts come last
    read_moment = partial(moment_of, seconds=intake.seconds)
    start_s, end_s = moments(read_moment, values.get("StartTime", ""), values.get("EndTime", ""))
    nodes = nodes_of(values.get("NodeList", ""))
    if state in UNFINISHED:
        end_s = RUNNING  # the recorded end is that of its time limit
    elif state == "PENDING" or not nodes:
        start_s = None  # the recorded start is an estimate
    intake.job(
        text[len("JobId=") :].partition(" ")[0],
        start_s,
        end_s,
        nodes,
        count=count_of(values.get("NumNodes", "").partition("-")[0]),
        queue=values.get("Partition", ""),
        preempted=state == "PREEMPTED",
        units=_units(text[begin.start() :], intake.options.unit) if intake.options.unit != NODE else "",
    )


def _units(text: str, unit: str) -> str:
    """Return the GPUs or cores of a job: slots of each node, as ``-d`` prints them, or else the total."""
    text = text.partition(" Command=")[0]  # users' texts follow
    lines = []
    for nodes, cpus, gres in _ON_NODES.findall(text):
        if unit == GPU:
            lines += [
                f"{found[2]}:{nodes}" if found[2] else f"{found[1] or 1}*{nodes}" for found in _GPUS.finditer(gres)
            ]
        elif cpus:
            lines.append(f"{cpus}:{nodes}")
    if lines or (unit == GPU and _ON_NODES.search(text)):
        return "\n".join(lines)
    tres, all_cpus = _TRES.search(text), _CPUS.search(text)
    return units_in(tres[1] if tres else "", all_cpus[1] if all_cpus else "", unit)
