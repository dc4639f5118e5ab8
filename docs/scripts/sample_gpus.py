"""Generates the built-in sample of a GPU cluster: ``python docs/scripts/sample_gpus.py FILE.npz``.

32 hosts with eight GPUs each for one week. Jobs follow the published model of Gavel (Narayanan et al., OSDI 2020),
which fits Microsoft's Philly trace: 70 % use one GPU, 10 % two, 15 % four, 5 % eight; four of five last 10^1.5 to 10^3
minutes, the others 10^3 to 10^4. They arrive at random, wait in order, and take GPUs of one host, the fullest that has
room; so small jobs share hosts, and GPUs stay idle while a larger job waits for a host.
"""  # noqa: INP001 - a script, which belongs to no package

from __future__ import annotations

import heapq
import sys
from datetime import UTC, datetime

import numpy as np

from bftrain import EventLog, save_log
from bftrain.node_units import GPU, slot_name
from bftrain_datasets.log.eventlog import LogBuilder
from bftrain_datasets.log.provenance import LogProvenance

HOSTS, GPUS = 32, 8
START_S = datetime(2026, 3, 2, tzinfo=UTC).timestamp()
DAYS, WARM_UP_DAYS, DAY_S = 7, 14, 86_400
JOBS_PER_HOUR = 6.8
SIZES, SHARES = (1, 2, 4, 8), (0.7, 0.1, 0.15, 0.05)
LONG_SHARE = 0.2
SEED = 3


def jobs() -> list[tuple[int, int, int]]:
    """Return arrival and duration in seconds, and the number of GPUs of each job."""
    random = np.random.default_rng(SEED)
    count = round(1.5 * JOBS_PER_HOUR * 24 * (DAYS + WARM_UP_DAYS))
    arrivals = np.cumsum(random.exponential(3600 / JOBS_PER_HOUR, count)) - WARM_UP_DAYS * DAY_S
    long = random.random(count) < LONG_SHARE
    minutes = 10 ** np.where(long, random.uniform(3, 4, count), random.uniform(1.5, 3, count))
    sizes = random.choice(SIZES, count, p=SHARES)
    whole = np.rint(arrivals).astype(int), np.rint(60 * minutes).astype(int), sizes
    return list(zip(*(column.tolist() for column in whole), strict=True))


def sample_gpus() -> EventLog:
    """Simulate the cluster; return the idle time of its GPUs."""
    hosts = [[slot_name(f"g{host + 1:02}", GPU, gpu) for gpu in range(GPUS)] for host in range(HOSTS)]
    log = LogBuilder(slot for host in hosts for slot in host)
    running: list[tuple[int, int, list[str]]] = []
    begin_s = now = -WARM_UP_DAYS * DAY_S
    for host in hosts:
        log.add_pool_change(START_S + begin_s, host, ())
    for arrival_s, duration_s, size in jobs():
        now = max(now, arrival_s)
        while (running and running[0][0] <= now) or max(map(len, hosts)) < size:
            end_s, place, slots = heapq.heappop(running)
            now = max(now, end_s + 1)
            hosts[place] += slots
            log.add_pool_change(START_S + end_s, slots, ())
        if now >= DAYS * DAY_S:
            break
        place = min(
            (place for place, free in enumerate(hosts) if len(free) >= size), key=lambda place: len(hosts[place])
        )
        hosts[place].sort()
        slots, hosts[place] = hosts[place][:size], hosts[place][size:]
        log.add_pool_change(START_S + now, (), slots)
        heapq.heappush(running, (now + duration_s, place, slots))
    provenance = LogProvenance(made_by="docs/scripts/sample_gpus.py", options={"seed": SEED})
    end_s = START_S + DAYS * DAY_S
    whole = log.build(begin_s=START_S + begin_s, end_s=max(end_s, START_S + now), provenance=provenance)
    return whole.select(window=(START_S, end_s))


if __name__ == "__main__":
    save_log(sample_gpus(), sys.argv[1])
