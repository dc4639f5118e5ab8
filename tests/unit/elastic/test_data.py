"""Data and random numbers: each sample once an epoch, in the same batches for any number of workers."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from bftrain_elastic import ElasticLoader, ElasticStream, State
from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker.data import BatchShare

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")

pytestmark = pytest.mark.torch


def be_in_group(monkeypatch: pytest.MonkeyPatch, rank: int, workers: int) -> None:
    """Have torch say that this process is one of a group."""
    for name, value in (("is_initialized", True), ("get_rank", rank), ("get_world_size", workers)):
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)


def parts(monkeypatch: pytest.MonkeyPatch, loader: ElasticLoader, rank: int, workers: int) -> Iterator[list[float]]:
    be_in_group(monkeypatch, rank, workers)
    for batch in loader:
        yield batch.tolist() if loader.weight else []


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_an_elastic_loader_gives_the_same_batches_for_any_number_of_workers(
    monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
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


def test_a_loader_goes_on_where_its_state_says_and_gives_again_what_was_not_committed(
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


def test_what_a_loader_cannot_divide_is_refused() -> None:
    with pytest.raises(BadScript, match=r"a list_iterator cannot be divided .*use ElasticStream for a stream"):
        ElasticLoader(iter([1, 2]), batch_size=1)
    with pytest.raises(BadScript, match="3 samples give no batch"):
        ElasticLoader(range(3), batch_size=4, drop_last=True)
    with pytest.raises(BadScript, match="has 3 samples, and had 4"):
        ElasticLoader(range(3), batch_size=1).load_state_dict(ElasticLoader(range(4), batch_size=1).state_dict())


@pytest.mark.parametrize("samples", [1, 2, 7, 12])
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_shares_are_the_batch_and_their_weighted_means_its_mean(samples: int, workers: int) -> None:
    numbers = [float(number * number) for number in range(samples)]
    shares = [BatchShare.of(samples, rank, workers) for rank in range(workers)]
    assert all(numbers[mine] for mine, _ in shares), "none is empty: its mean would be no number"
    assert sorted(one for mine, weight in shares if weight for one in numbers[mine]) == numbers
    means = [weight * sum(numbers[mine]) / len(numbers[mine]) for mine, weight in shares]
    assert sum(means) / workers == pytest.approx(sum(numbers) / samples, rel=1e-14)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_share_of_an_array_or_a_tensor_is_contiguous(rank: int) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")
    mine = BatchShare.of(8, rank, 3).mine
    targets = torch.arange(8 * 5).reshape(8, 5)
    assert targets[mine].view(-1).tolist() == targets.numpy()[mine].ravel().tolist()
    assert targets.numpy()[mine].flags.c_contiguous


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="a batch of 0 samples"):
        BatchShare.of(0, 0, 2)


SAMPLES, BATCH, EPOCHS = 23, 5, 3


class Protocol:
    """A loader with no more than the two methods that streams have in common; its state changes as it reads."""

    def __init__(self) -> None:
        self._state = {"next": 0}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while self._state["next"] < SAMPLES:
            numbers = list(range(self._state["next"], min(self._state["next"] + BATCH, SAMPLES)))
            self._state["next"] = numbers[-1] + 1
            names = [str(number) for number in numbers]
            yield {"source": "train", "x": torch.tensor(numbers), "names": names, "kind": 3}
        self._state["next"] = 0

    def state_dict(self) -> dict[str, Any]:
        return self._state

    def load_state_dict(self, found: dict[str, Any]) -> None:
        self._state = found


def torchdata(*, stream: bool, num_workers: int) -> Any:  # noqa: ANN401 - a StatefulDataLoader
    """Return torchdata's loader over a stream, or over numbered samples in a random order."""
    loaders = pytest.importorskip("torchdata.stateful_dataloader", reason="needs torchdata: pip install torchdata")

    class Numbers(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
        """Samples without numbers; with processes each of them reads every other one."""

        def __init__(self) -> None:
            self._next = 0

        def __iter__(self) -> Iterator[int]:
            about = torch.utils.data.get_worker_info()
            mine, of = (about.id, about.num_workers) if about else (0, 1)
            while self._next < SAMPLES:
                self._next += 1
                if (self._next - 1) % of == mine:
                    yield self._next - 1
            self._next = 0

        def state_dict(self) -> dict[str, Any]:
            return {"next": self._next}

        def load_state_dict(self, found: dict[str, Any]) -> None:
            self._next = found["next"]

    source = Numbers() if stream else list(range(SAMPLES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it calls what PyTorch has deprecated
        return loaders.StatefulDataLoader(source, batch_size=BATCH, shuffle=not stream, num_workers=num_workers)


def loader_of(kind: str) -> Any:  # noqa: ANN401 - any loader
    if kind == "protocol":
        return Protocol()
    return torchdata(stream="stream" in kind, num_workers=2 if "processes" in kind else 0)


def numbers_of(part: Any) -> list[int]:  # noqa: ANN401 - what a loader gives
    if isinstance(part, dict):
        assert part["names"] == [str(number) for number in part["x"].tolist()]
        assert (part["source"], part["kind"]) == ("train", 3)
        return part["x"].tolist()
    return part.tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["protocol", "stream", "numbered", "stream with processes"])
def test_each_sample_is_trained_once_an_epoch_through_changes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, done = [1, 3, 2, 1, 4, 2, 3, 1], list[tuple[int, list[int]]]()
    kept: dict[str, Any] | None = None
    for size in sizes:
        group = [ElasticStream(loader_of(kind), epochs=EPOCHS, seed=7) for _ in range(size)]
        be_in_group(monkeypatch, 0, 1)
        for one in group:
            if kept is not None:
                one.load_state_dict(kept)
        each = []
        for rank, one in enumerate(group):
            be_in_group(monkeypatch, rank, size)
            found = []
            for part in one:
                found.append(
                    (one.epoch, numbers_of(part)[: None if one.weight else 0], copy.deepcopy(one.state_dict()))
                )
                if (len(found) == 2 and size != sizes[-1]) or len(found) == 99:
                    break
            each.append(found)
        for parts in zip(*each, strict=True):
            done.append((parts[0][0], [number for _, mine, _ in parts for number in mine]))
            kept = copy.deepcopy(parts[0][2])
            assert repr(parts[-1][2]) == repr(kept), "all say the same of where they are"
    for epoch in range(EPOCHS):
        assert Counter(number for at, found in done for number in found if at == epoch) == Counter(range(SAMPLES))
    assert len(done) == EPOCHS * len([found for at, found in done if at == 0])


@pytest.mark.filterwarnings("ignore")
def test_a_stream_without_a_place_of_its_own_is_read_once_an_epoch_through_changes() -> None:
    loaders = pytest.importorskip("torchdata.stateful_dataloader", reason="needs torchdata: pip install torchdata")

    class PlainStream(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Iterator[int]:
            yield from range(SAMPLES)

    found, kept = list[int](), dict[str, Any]()
    for _ in range(SAMPLES):  # each group trains one batch
        data = ElasticStream(loaders.StatefulDataLoader(PlainStream(), batch_size=2), epochs=2)
        if kept:
            data.load_state_dict(kept)
        found += next(iter(data)).tolist()
        kept = copy.deepcopy(data.state_dict())
    assert found == [*range(SAMPLES), *range(SAMPLES)][: len(found)]
    assert len(found) > 1.5 * SAMPLES


def test_the_end_of_an_epoch_is_known_with_its_last_batch() -> None:
    data = ElasticStream(Protocol(), epochs=2)
    assert [data.ends_epoch for _ in data] == ([False] * 4 + [True]) * 2
    assert not list(data), "all is done"
    again = ElasticStream(Protocol(), epochs=2)
    again.load_state_dict(data.state_dict())
    assert not list(again)


def test_what_a_stream_cannot_divide_is_refused() -> None:
    with pytest.raises(BadScript, match="a list does not report its position"):
        ElasticStream([1, 2])

    class Uneven(Protocol):
        def __iter__(self) -> Iterator[Any]:
            yield torch.zeros(3), torch.zeros(4)

    with pytest.raises(BadScript, match=r"tensors of \[3, 4\] samples"):
        next(iter(ElasticStream(Uneven())))
