"""What a live run remembers of how things went: exact averages, bounded memory, beyond a restart."""

from __future__ import annotations

import random
import stat
import sys
from pathlib import Path

import pytest

from bftrain.live.model.schemas import Span
from bftrain.live.monitor.history import HistoryAverages, HistoryLevel, HistorySample, LiveHistory


def whole(cell: HistoryAverages) -> dict[int, float]:
    return dict(zip(cell.numbers, cell.sizes, strict=True))


def test_a_cell_holds_exact_averages_however_short_something_lasted() -> None:
    level = HistoryLevel(Span(span_s=100.0, width_s=10.0))
    level.add(100.0, 102.0, HistorySample(4, 50.0, {1: 4}))
    level.add(102.0, 102.5, HistorySample(2, 0.0, {1: 1, 2: 1}))
    level.add(102.5, 110.0, HistorySample(0, 0.0, {}))
    level.add(110.0, 111.0, HistorySample(8, 1.0, {}))
    first, second = level.cells()
    assert (first.at, first.known_s) == (10, 10.0)
    assert first.pool == pytest.approx((2 * 4 + 0.5 * 2) / 10)
    assert first.speed == pytest.approx(10.0)
    assert whole(first) == pytest.approx({1: (2 * 4 + 0.5) / 10, 2: 0.05})
    assert (second.at, second.known_s, second.pool) == (11, 1.0, 8.0)


@pytest.mark.parametrize("seed", range(2))
def test_all_levels_tell_of_the_same_node_seconds(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - the same every time
    history, now, held = LiveHistory(), 1_700_000_000.0, dict[int, float]()
    state = HistorySample(0, 0.0, {})
    history.look(now, state)
    for _ in range(300):
        seconds = dice.expovariate(2.0)
        for number, size in state.sizes.items():
            held[number] = held.get(number, 0.0) + size * seconds
        now += seconds
        state = HistorySample(9, 1.0, {number: dice.randint(1, 3) for number in range(3) if dice.random() < 0.7})
        history.look(now, state)
    for level in history.levels:
        found: dict[int, float] = {}
        for cell in level.cells():
            for number, size in whole(cell).items():
                found[number] = found.get(number, 0.0) + size * cell.known_s
        assert found == pytest.approx(held, rel=1e-5)


def test_memory_is_bounded_in_every_case() -> None:
    history, now = LiveHistory(), 1_700_000_000.0

    def live(steps: int) -> int:
        nonlocal now
        for step in range(steps):
            now += 900.0
            number = int(now)
            history.name(number, f"task {number}", 0)
            history.look(now, HistorySample(10, 1.0, {number: 5, number + 1: 5}))
            assert step >= 0
        cells = [list(level.cells()) for level in history.levels]
        assert all(len(found) <= 721 for found in cells)
        return sum(sys.getsizeof(cell.numbers) for found in cells for cell in found) + 100 * len(history.names)

    before = live(1_000)
    assert live(1_000) < 1.5 * before
    assert len(history.names) < 2 * 4096 + 4 * 720


def test_a_restart_goes_on_with_what_was_seen_also_within_a_cell(tmp_path: Path) -> None:
    path, before = tmp_path / "history.json", LiveHistory()
    before.name(1, "one", 5)
    before.look(1000.0, HistorySample(4, 10.0, {1: 4}))
    before.look(1001.0)
    before.look(2403.0)
    before.saving(path)()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before.saving(tmp_path / "no such folder" / "history.json")()  # is no reason to end

    after = LiveHistory()
    after.load(path)
    assert after.names[1].name == "one"
    after.look(2406.0, HistorySample(2, 10.0, {1: 2}))
    after.look(2409.0)
    *_, last = after.level(86400).cells()
    assert (last.at, last.known_s) == (20, 6.0)
    assert last.pool == pytest.approx((3 * 4 + 3 * 2) / 6)
    assert whole(last) == {1: last.pool}
    assert [cell.at for cell in after.level(86400).cells()] == list(range(8, 21))


@pytest.mark.parametrize(
    "text", ["", "{", '{"widths":[1],"levels":[],"names":{}}', '{"widths":[1.0,5.0,120.0,1200.0]}']
)
def test_a_history_that_cannot_be_read_is_left_out(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history.json"
    path.write_text(text)
    history = LiveHistory()
    history.load(path)
    history.load(tmp_path / "none")
    assert not any(list(level.cells()) for level in history.levels)
