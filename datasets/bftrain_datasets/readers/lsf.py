"""LSF's accounting, ``lsb.acct``: one record a finished job, quoted texts and numbers with blanks between them."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from bftrain_datasets.importing.text_cells import first_lines, whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bftrain_datasets.importing.job_checks import RecordIntake
    from bftrain_datasets.importing.raw_file import RawFile

name: Final = "lsf"
about: Final = "LSF: lsb.acct, its JOB_FINISH records"

JOB_FINISH: Final = "JOB_FINISH"
# Places of the fields, as LSF 9 and 10 write them; hosts and the fields after them have none that is fixed
EVENT_TIME, JOB, START, QUEUE, ASKED_HOSTS = 2, 3, 10, 12, 22
INDEX_AFTER_HOSTS: Final = 29  # of a job in its array; the texts and the resource usage lie between

_FIELD: Final = re.compile(r'"([^"]*(?:""[^"]*)*)"|(\S+)')
_BEGIN: Final = re.compile(r'"([A-Z][A-Z0-9_]*)" "\d')
_HOST: Final = re.compile(r"(?:\d+\*)?([\w.-]+)\Z")


def recognises(head: bytes) -> bool:
    """Say whether one of the first lines begins with a record of a finished job."""
    return any(match is not None and match[1] == JOB_FINISH for match in map(_BEGIN.match, first_lines(head)))


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every record. A text in one may go over several lines: those after the first say nothing that we need."""
    inside = False  # a text that goes on
    for number, line in file.lines():
        begin = _BEGIN.match(line)
        if begin is None and inside:
            inside ^= line.count('"') % 2 == 1
            continue
        if not line.strip() or line.startswith("#"):
            continue
        intake.row(number)
        if begin is None:
            intake.set_aside("malformed")
            continue
        inside = line.count('"') % 2 == 1
        if begin[1] == JOB_FINISH:
            _take(line, intake)
        else:
            intake.set_aside("other_record")


def _take(line: str, intake: RecordIntake) -> None:
    fields = _fields(line)
    hosts, after = _hosts(fields)
    if hosts is None:
        intake.set_aside("malformed")
        return
    try:
        start_s, end_s = intake.seconds(fields[START]), intake.seconds(fields[EVENT_TIME])
    except ValueError:
        intake.set_aside("bad_time")
        return
    place = after + INDEX_AFTER_HOSTS
    index = fields[place] if place < len(fields) else ""
    intake.job(
        f"{fields[JOB]}[{index}]",
        start_s if start_s > 0 else None,
        end_s,
        "\n".join(hosts),
        count=len(set(hosts)),
        queue=fields[QUEUE],
        expand=_names,
    )


def _fields(line: str) -> list[str]:
    """Split a record as far as it is needed: from the end of the hosts on its length is fixed."""
    found = (match[1] if match[2] is None else match[2] for match in _FIELD.finditer(line))
    fields = list(islice(found, ASKED_HOSTS + 1))
    for _ in range(2):  # hosts asked for and hosts used; before each stands how many
        count = whole_number(fields[-1]) if fields else None
        if count is None:
            return fields
        fields += islice(found, count + 1)
    fields += islice(found, INDEX_AFTER_HOSTS)
    return fields


def _hosts(fields: Sequence[str]) -> tuple[Sequence[str] | None, int]:
    """Hosts that the job ran on, as written, and the place after them; None if the record is cut off before."""
    place = ASKED_HOSTS
    asked = whole_number(fields[place]) if len(fields) > place else None
    if asked is None:
        return None, 0
    place += asked + 1
    used = whole_number(fields[place]) if len(fields) > place else None
    if used is None or len(fields) < place + 1 + used:
        return None, 0
    return fields[place + 1 : place + 1 + used], place + 1 + used


@lru_cache(maxsize=1 << 12)
def _names(text: str) -> list[str]:
    """Names of hosts; ``16*name`` is one host with 16 slots."""
    names = []
    for part in text.split("\n"):
        match = _HOST.match(part)
        if match is None:
            raise ValueError(f"{part!r} is no host")
        names.append(match[1])
    return names
