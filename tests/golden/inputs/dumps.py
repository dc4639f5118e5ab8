"""Import generated dumps of 300,000 rows, and print the digest of each log and what was found."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import bftrain

ROWS, NODES, BEGIN = 300_000, 4_000, 1_600_000_000


def jobs(count: int) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Yield number, submission, start, end, first node and node count of jobs, by start."""
    dice, start = random.Random(7), BEGIN  # noqa: S311 - the same jobs every time
    for number in range(count):
        start += int(dice.expovariate(0.05))
        end = start + 1 + int(dice.expovariate(1 / 5_000))
        size = min(1 + int(dice.expovariate(0.12)), 64)
        yield number, start - int(dice.expovariate(0.01)), start, end, dice.randrange(NODES - 64), size


def sacct() -> Iterator[str]:
    yield "JobID|Partition|Submit|Start|End|NNodes|NodeList|State\n"
    for number, submit, start, end, first, size in jobs(ROWS):
        state = ("COMPLETED", "CANCELLED by 1", "NODE_FAIL", "TIMEOUT")[number % 11 % 4]
        part = ("batch", "debug")[number % 5 == 0]
        yield f"{number}|{part}|{submit}|{start}|{end}|{size}|nid[{first:05d}-{first + size - 1:05d}]|{state}\n"


def pbs() -> Iterator[str]:
    events = []
    for number, submit, start, end, first, size in jobs(ROWS // 2):
        hosts = "+".join(f"nid{node:05d}/0*36" for node in range(first, first + size))
        begun = f"user=u queue=q ctime={submit} qtime={submit} start={start} exec_host={hosts}"
        events += [(start, f"S;{number}.srv;{begun}"), (end, f"E;{number}.srv;{begun} end={end} Exit_status=0")]
    for at, text in sorted(events, key=lambda event: event[0]):
        yield f"{datetime.fromtimestamp(at, UTC):%m/%d/%Y %H:%M:%S};{text}\n"


def swf() -> Iterator[str]:
    yield f"; UnixStartTime: {BEGIN}\n; MaxNodes: {NODES}\n"
    for number, submit, start, end, _, size in jobs(ROWS):
        arrived, waited, ran = submit - BEGIN + 900, start - submit, end - start
        yield f"{number + 1} {arrived} {waited} {ran} {size} -1 -1 {size} {ran} -1 1 {number % 9} 1 1 1 1 -1 -1\n"


for write in (sacct, pbs, swf):
    path = Path(f"{write.__name__}.dump")
    path.write_text("".join(write()))
    imported = bftrain.import_logs(path, options=bftrain.ImportOptions(counts=write is swf))
    print(f"{path.name}: {imported.log.sha256} nodes {len(imported.log.node_names)} rows {imported.rows}")
    for found in imported.findings:
        print(f"  {found.name}: {found.count}, {found.node_s or 0:.6g} node-seconds, {found.first}, {found.done}")
