"""LSF's ended jobs (``lsb.acct``), as ``mbatchd`` writes them.

| field of JOB_FINISH | required | meaning |
|---|---|---|
| 3 | yes | time of the record: the end |
| 4 | yes | job; its array index follows later |
| 11 | yes | start; 0 if it never started |
| 13 | | queue |
| from 23 | yes | requested hosts, then the hosts it ran on, such as ``16*host``: 16 cores |
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import islice
from typing import Final

from bftrain.node_units import CORE
from bftrain_datasets.importing.findings import SkippedRow
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.machine_nodes import Share
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_columns import first_lines, moments, whole_number

name: Final = "lsf"
tells_units: Final = (CORE,)  # the resources in the records
about: Final = "LSF: finished jobs in lsb.acct"

# Field positions in LSF 9 and 10; hosts and the fields after them have no fixed position
ENDED: Final = "JOB_FINISH"
EVENT_TIME, JOB, SUBMIT, START, USER, QUEUE = 2, 3, 7, 10, 11, 12
FIXED_FIELDS: Final = 22  # number of fields before the requested hosts
INDEX_AFTER_HOSTS: Final = 29  # array index of the job, after texts and the resource usage

_FIELD: Final = re.compile(r'"([^"]*(?:""[^"]*)*)"|(\S+)')
_BEGIN: Final = re.compile(r'"([A-Z][A-Z0-9_]*)" "\d')
_HOST: Final = re.compile(r"(?:\d+\*)?([\w.-]+)\Z")


def recognises(head: bytes) -> bool:
    """Return whether one of the first lines starts a record of a finished job."""
    return any(match is not None and match[1] == ENDED for match in map(_BEGIN.match, first_lines(head)))


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every record. Texts may span several lines; all required fields are in the first line."""
    intake.take_rows(_first_lines_of_records(file), partial(_finished, intake=intake))


def _first_lines_of_records(file: RawFile) -> Iterator[tuple[int, str]]:
    inside = False  # whether the line continues a text
    for number, line in file.lines():
        begins = _BEGIN.match(line) is not None
        if inside and not begins:
            inside ^= line.count('"') % 2 == 1
        elif line.strip() and not line.startswith("#"):
            inside = begins and line.count('"') % 2 == 1
            yield number, line


def _finished(line: str, intake: RecordIntake) -> None:
    begin = _BEGIN.match(line)
    if begin is None or begin[1] != ENDED:
        raise SkippedRow("malformed" if begin is None else "other_record")
    found = (match[1] if match[2] is None else match[2] for match in _FIELD.finditer(line))
    fields = list(islice(found, FIXED_FIELDS))
    hosts: list[str] = []
    for _ in range(2):  # requested hosts, then used hosts, each preceded by their number
        count = whole_number(next(found, ""))
        hosts = list(islice(found, count or 0))
        if count != len(hosts):
            raise SkippedRow("malformed")
    index = next(islice(found, INDEX_AFTER_HOSTS, None), "")
    written = "\n".join(hosts)
    start_s, end_s = moments(intake.seconds, fields[START], fields[EVENT_TIME])
    intake.job(
        f"{fields[JOB]}[{index}]",
        start_s or None,
        end_s,
        written,
        count=len(dict(_slots(written))),
        queue=fields[QUEUE],
        expand=_names,
        units=_slots(written),
        user=fields[USER],
        submit_s=intake.clock.uncounted(fields[SUBMIT]),
    )


@lru_cache(maxsize=1 << 12)
def _slots(text: str) -> tuple[Share, ...]:
    """Return the slots per host, which are cores: ``16*name``, or the name once per slot."""
    found = Counter[str]()
    for part in text.split("\n"):
        number, _, host = part.rpartition("*")
        found[host] += whole_number(number) or 1
    return tuple((host, number) for host, number in found.items() if host)


@lru_cache(maxsize=1 << 12)
def _names(text: str) -> list[str]:
    """Return host names; ``16*name`` is one host with 16 slots."""
    names = []
    for part in text.split("\n"):
        match = _HOST.match(part)
        if match is None:
            raise ValueError(f"{part!r} is not a host")
        names.append(match[1])
    return names
