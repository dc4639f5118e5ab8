"""Assessment: its figures are those of a plain computation from the log's stays and the table of allocations."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import bftrain
from bftrain import EventLog, generate_log, import_logs, sample_log, save_log
from tests.helpers import program
from tests.helpers.in_process import CommandLine
from tests.helpers.site_data import site_data
from tests.unit.replay.cases import log_of

Stays = list[tuple[str, float, float]]  # node, begin and end

FREE: Final[dict[str, Any]] = {"cost_factor": 0.0, "progress": "task", "max_tasks": 8}  # all that is held counts
ZONE: Final = "Europe/Prague"
RESAMPLES: Final = 2000
DAY_S: Final = 86_400.0
PRICES: Final = ("--node-watts", "idle=100,busy=400", "--price-kwh", 0.25, "--co2", 500, "--node-hour-price", 2)
LOGS: Final = {
    "days": lambda: import_logs(site_data("sacct/ub-micro-slurm_acct.out")).log,
    "weeks": lambda: generate_log(6, 32.0, 5),
}


@cache
def assessed(name: str) -> tuple[EventLog, dict[str, Any], Stays]:
    """Return a log, its assessment, and which nodes a replay of it held."""
    log = LOGS[name]()
    with TemporaryDirectory() as folder:
        save_log(log, Path(folder) / "log.npz")
        settings = ("--cost-factor", 0, "--progress", "task", "--max-tasks", 8, "--events", 0, "--timezone", ZONE)
        ended = program.bftrain("assess", "log.npz", *settings, *PRICES, "--quick", "--json", "-q", cwd=Path(folder))
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    held = bftrain.replay(log, **FREE).result.table("allocations")
    start_s = log.start_s
    columns = (held["node"], held["from_s"] + start_s, held["to_s"] + start_s)
    return log, found, list(zip(*(column.tolist() for column in columns), strict=True))


def idle_stays(log: EventLog) -> Stays:
    since: dict[str, float] = {}
    stays = []
    for time_s, left, joined in log.pool_changes():
        stays += [(node, since.pop(node), time_s) for node in left]
        since.update(dict.fromkeys(joined, time_s))
    return stays + [(node, begin_s, log.end_s) for node, begin_s in since.items()]


def hours_within(stays: Iterable[tuple[str, float, float]], low_s: float, high_s: float) -> float:
    return sum(max(0.0, min(end_s, high_s) - max(begin_s, low_s)) for _, begin_s, end_s in stays) / 3600


def edges_of(log: EventLog) -> list[float]:
    length_s = 604_800.0 if log.span_s >= 4 * 604_800.0 else 86_400.0
    edges = [log.start_s]
    while log.end_s - edges[-1] >= 1.5 * length_s:
        edges.append(edges[-1] + length_s)
    return [*edges, log.end_s]


def bootstrap(amounts: Sequence[float], of: Sequence[float], factor: float) -> tuple[float, ...]:
    draws = np.random.default_rng(0).integers(0, len(amounts), (RESAMPLES, len(amounts)))
    drawn = [(sum(amounts[i] for i in draw), sum(of[i] for i in draw)) for draw in draws.tolist()]
    figures = [factor * amount / whole for amount, whole in drawn if whole]
    return tuple(float(np.percentile(figures, at)) for at in (5, 50, 95))


def same(found: Mapping[str, float | None], expected: tuple[float, ...]) -> None:
    low, median, high = expected
    assert found["median"] == pytest.approx(median, rel=1e-6, abs=1e-6)
    if found["low"] is not None:
        assert (found["low"], found["high"]) == pytest.approx((low, high), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", LOGS)
def test_node_hours_a_week_and_their_worth_are_those_of_plain_sums(name: str) -> None:
    log, found, held_stays = assessed(name)
    blocks = list(pairwise(edges_of(log)))
    hours = [(high - low) / 3600 for low, high in blocks]
    idle, held = ([hours_within(stays, low, high) for low, high in blocks] for stays in (idle_stays(log), held_stays))
    same(found["idle"], bootstrap(idle, hours, 168.0))
    same(found["used"], bootstrap(held, hours, 168.0))
    same(found["harvest"], bootstrap(held, hours, 168.0))
    same(found["harvest_share"], bootstrap(held, idle, 1.0))
    same(found["of_machine"], bootstrap(held, [each * len(log.node_names) for each in hours], 1.0))
    worth = found["worth"]
    same(worth["energy_kwh"], bootstrap(held, hours, 168.0 * 0.3))
    same(worth["co2_t"], bootstrap(held, hours, 168.0 * 0.3 * 500 / 1e6))
    same(worth["energy_cost"], bootstrap(held, hours, 168.0 * 0.3 * 0.25))
    same(worth["value"], bootstrap(held, hours, 168.0 * 2.0))
    same(worth["net"], bootstrap(held, hours, 168.0 * (2.0 - 0.3 * 0.25)))
    assert not {cause["cause"] for cause in found["causes"]} & {"preemption", "rescaling", "start_up"}


def test_hours_and_weekdays_are_those_of_the_calendar() -> None:
    log, found, held_stays = assessed("days")
    edges = edges_of(log)
    held, lasting = (defaultdict[str, list[float]](lambda: [0.0] * (len(edges) - 1)) for _ in range(2))
    for stays, counted in ((held_stays, held), ([("", low, high) for low, high in pairwise(edges)], lasting)):
        for block, part, hours in quarters(stays, edges):
            counted[part][block] += hours
    for part in (*found["hours"], *found["days"]):
        if sum(lasting[part["part"]]):
            same(part["nodes"], bootstrap(held[part["part"]], lasting[part["part"]], 1.0))
        else:
            assert part["nodes"] is None


def quarters(stays: Stays, edges: Sequence[float]) -> Iterator[tuple[int, str, float]]:
    """Cut stays at quarters of an hour and at edges; give block, hour and weekday, and how long each piece is."""
    for _, since_s, end_s in stays:
        begin_s = since_s
        while begin_s < end_s:
            block = sum(begin_s >= edge for edge in edges[1:-1])
            until_s = min(end_s, (begin_s // 900.0 + 1.0) * 900.0, edges[block + 1])
            at = datetime.fromtimestamp(begin_s, ZoneInfo(ZONE))
            yield block, f"{at:%H}", (until_s - begin_s) / 3600
            yield block, f"{at:%A}", (until_s - begin_s) / 3600
            begin_s = until_s


@pytest.mark.parametrize(("zone", "hours"), [("Asia/Kolkata", {"08", "09"}), ("UTC", {"02", "03", "04"})])
def test_hours_are_those_of_the_time_zone(zone: str, hours: set[str]) -> None:
    """Four nodes are idle from 02:30 to 04:30 UTC on each of three days, which is 08:00 to 10:00 in India."""
    begins_s = [9000.0 + day * DAY_S for day in range(3)]
    changes = [change for at_s in begins_s for change in ((at_s, "abcd", ""), (at_s + 7200.0, "", "abcd"))]
    log = log_of(*changes, end_s=3 * DAY_S, start_s=20_000 * DAY_S)
    found = bftrain.assess(log, most_events=0, timezone=zone, **FREE).summary
    assert {part["part"] for part in found["hours"] if part["nodes"]["median"] > 0.0} == hours


def test_a_part_that_is_replayed_is_applied_to_all_idle_node_time() -> None:
    log = sample_log()
    found = bftrain.assess(log, most_events=len(log) // 2, **FREE).summary
    assert 1 <= found["log"]["blocks_replayed"] < found["log"]["blocks_in_all"]
    assert found["idle"]["median"] == pytest.approx(log.idle_node_s / log.span_s * 168.0, rel=0.1)
    assert found["harvest"]["median"] <= found["idle"]["median"]
    assert any("drawn at random" in text for text in found["assumptions"])


def test_prices_that_contradict_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    save_log(sample_log(), tmp_path / "log.npz")
    ended = CommandLine(monkeypatch, capfd)("assess", tmp_path / "log.npz", "--node-watts", "idle=100,busy=50")
    assert (ended.code, "busy" in ended.err) == (2, True)
