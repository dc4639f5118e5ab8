"""The cost of a copy of a state on another node, relative to the SHA-256 of its bytes in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import pytest
import torch

from bftrain_elastic.wire.copy_stream import PIECE_BYTES, content_digest
from bftrain_elastic.wire.worker_messages import SendCopies
from bftrain_elastic.worker.outside_copy import OutsideCopy, Sending
from bftrain_elastic.worker.state_tree import fold
from tests.helpers.copying import MB, served
from tests.helpers.figures import Figures

pytestmark = [pytest.mark.bench, pytest.mark.torch]

SIZE, ROUNDS = 40 * MB, 9
BAR_UNCHANGED, BAR_CHANGED = 1.5, 2.5


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def test_a_copy_costs_little_more_than_its_digests(figures: Figures) -> None:
    table = torch.arange(SIZE // 4, dtype=torch.float32)
    content = memoryview(table.numpy()).cast("B")
    hashing, unchanged, changed = [], [], []
    with served() as server:
        copy = OutsideCopy()
        copy.aim(SendCopies(server.place()))

        def send(step: int) -> None:
            copy.send(fold({"table": table}), step, 0, Sending())
            assert copy.step == step

        for step in range(21):
            send(step)
        for number in range(ROUNDS):
            hashing.append(
                seconds(lambda: [content_digest(content[at : at + PIECE_BYTES]) for at in range(0, SIZE, PIECE_BYTES)])
            )
            unchanged.append(seconds(lambda number=number: send(2 * number + 21)))
            table += 1
            changed.append(seconds(lambda number=number: send(2 * number + 22)))
    figures.add("digests of 40 MB, median", 1e3 * median(hashing), "ms")
    figures.add("unchanged state, times its digests", median(unchanged) / median(hashing))
    figures.add("changed state, times its digests", median(changed) / median(hashing))
    assert median(unchanged) <= BAR_UNCHANGED * median(hashing)
    assert median(changed) <= BAR_CHANGED * median(hashing)
