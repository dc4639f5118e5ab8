"""Reader of Slurm's ``jobcomp/filetxt``: one line per ended job, with ``Key=value`` separated by blanks."""

from __future__ import annotations

from functools import partial
from typing import Final

from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import count_of, first_lines, moment_of, moments, nodes_of

name: Final = "jobcomp"
about: Final = "Slurm: the file of the jobcomp/filetxt plug-in, one line a job that ended"

# These keys are adjacent in every version. Keys before and after them may contain blanks, and even '=', such as
# Name= and WorkDir=; so parsing starts here, not at the beginning of the row.
KEYS: Final = ("JobState=", "Partition=", "TimeLimit=", "StartTime=", "EndTime=", "NodeList=", "NodeCnt=")
HEAD: Final = "JobId="


def recognises(head: bytes) -> bool:
    """Return whether one of the first lines is a job."""
    return any(_values_of(line) for line in first_lines(head))


def _values_of(line: str) -> list[str] | None:
    """Return the values of the keys of a row, or None for other lines."""
    if not line.startswith(HEAD):
        return None
    begin = line.find(" JobState=")
    while begin >= 0:
        cells = line[begin + 1 :].split(" ", len(KEYS))
        if len(cells) >= len(KEYS) and all(map(str.startswith, cells, KEYS)):
            return [cell[len(key) :] for key, cell in zip(KEYS, cells, strict=False)]
        begin = line.find(" JobState=", begin + 1)  # that one was part of the name
    return None


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every job."""
    for number, line in file.lines():
        if not line.strip():
            continue
        intake.row(number)
        values = _values_of(line)
        if values is None:
            intake.set_aside("malformed")
            continue
        state, queue, _, start, end, nodes, count = values
        try:
            start_s, end_s = moment_of(start, intake.seconds), moment_of(end, intake.seconds)
        except ValueError:
            start_s, end_s = moments(partial(moment_of, seconds=intake.seconds), start, end)
        job = line[len(HEAD) :].partition(" ")[0]
        preempted = state == "PREEMPTED"
        intake.job(job, start_s, end_s, nodes_of(nodes), count=count_of(count), queue=queue, preempted=preempted)
