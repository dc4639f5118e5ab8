"""Epochs of data: each sample once, in the same batches for any number of workers, from where the state says."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest

from bftrain_elastic import ElasticLoader, State
from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker import elastic_loader

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")
pytestmark = pytest.mark.torch


def parts(monkeypatch: pytest.MonkeyPatch, loader: ElasticLoader, rank: int, workers: int) -> Iterator[list[float]]:
    monkeypatch.setattr(elastic_loader, "group_rank", lambda: (rank, workers))
    for batch in loader:
        yield batch.tolist() if loader.weight else []


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_the_same_batches_come_for_any_number_of_workers(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    def batches(of: int) -> list[list[float]]:
        loaders = [ElasticLoader(torch.arange(23), batch_size=5, epochs=2, seed=3) for _ in range(of)]
        each = [list(parts(monkeypatch, one, rank, of)) for rank, one in enumerate(loaders)]
        return [sorted(number for part in found for number in part) for found in zip(*each, strict=True)]

    assert batches(workers) == batches(1)
    first, second = batches(1)[:5], batches(1)[5:]
    assert [len(batch) for batch in first] == [5, 5, 5, 5, 3]
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(23))
    assert first != second, "another order in each epoch"


def test_a_batch_that_was_decided_takes_the_place_of_the_scripts_own(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = ElasticLoader(range(10), batch_size=4, shuffle=False)
    first = next(parts(monkeypatch, loader, 0, 1))
    monkeypatch.setenv("BFTRAIN_BATCH", "5")
    assert State(data=loader).decided_batch == 5
    assert [first, *parts(monkeypatch, loader, 0, 1)] == [[0, 1, 2, 3], [4, 5, 6, 7, 8], [9]]
    assert len(loader) == 2
    monkeypatch.setenv("BFTRAIN_BATCH", "0")
    assert State().decided_batch is None


def test_it_goes_on_where_its_state_says_and_gives_again_what_was_not_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    straight = list(parts(monkeypatch, ElasticLoader(range(10), batch_size=4, epochs=3), 0, 1))
    done: list[list[float]] = []
    loader = ElasticLoader(range(10), batch_size=4, epochs=3)
    ends = []
    while len(done) < len(straight):
        kept = loader.state_dict()
        for number, part in enumerate(parts(monkeypatch, loader, 0, 1)):
            if number == 2:  # a worker dies before the commit
                break
            done.append(part)
            ends.append((loader.epoch, loader.ends_epoch, loader.samples))
            kept = loader.state_dict()
        loader = ElasticLoader(range(10), batch_size=4, epochs=3)
        loader.load_state_dict(kept)
    assert done == straight
    assert ends == [(epoch, count == 2, count) for epoch in range(3) for count in (4, 4, 2)]
    assert list(loader) == []


def test_the_last_batch_may_be_left_out_and_the_order_kept() -> None:
    loader = ElasticLoader(range(10), batch_size=4, shuffle=False, drop_last=True)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(loader) == 2
    assert loader.ends_epoch


def test_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(BadScript, match=r"a list_iterator cannot be divided .*how far a stream was read"):
        ElasticLoader(iter([1, 2]), batch_size=1)
    with pytest.raises(BadScript, match="3 samples give no batch"):
        ElasticLoader(range(3), batch_size=4, drop_last=True)
    with pytest.raises(BadScript, match="has 3 samples, and had 4"):
        ElasticLoader(range(3), batch_size=1).load_state_dict(ElasticLoader(range(4), batch_size=1).state_dict())
