"""Streams: each sample once in an epoch for any number of workers, from where the loader's own state says."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from bftrain_elastic import ElasticStream
from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker import elastic_stream
from bftrain_elastic.worker.state_tree import fold

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")
pytestmark = pytest.mark.torch

SAMPLES, BATCH, EPOCHS = 23, 5, 3


class Protocol:
    """A loader with no more than the two methods that streams have in common; its state changes as it reads."""

    def __init__(self) -> None:
        self._state = {"next": 0}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while self._state["next"] < SAMPLES:
            numbers = list(range(self._state["next"], min(self._state["next"] + BATCH, SAMPLES)))
            self._state["next"] = numbers[-1] + 1
            yield {"x": torch.tensor(numbers), "names": [str(number) for number in numbers], "kind": 3}
        self._state["next"] = 0

    def state_dict(self) -> dict[str, Any]:
        return self._state

    def load_state_dict(self, found: dict[str, Any]) -> None:
        self._state = found


def torchdata(*, stream: bool, num_workers: int) -> Any:  # noqa: ANN401 - a StatefulDataLoader
    """Return torchdata's loader over a stream, or over numbered samples in a random order."""
    loaders = pytest.importorskip("torchdata.stateful_dataloader", reason="needs torchdata: pip install torchdata")

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
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

    source = Stream() if stream else list(range(SAMPLES))
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
        assert part["kind"] == 3
        return part["x"].tolist()
    return part.tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["protocol", "stream", "numbered", "stream with processes"])
def test_each_sample_is_trained_once_an_epoch_through_changes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, done = [1, 3, 2, 1, 4, 2, 3, 1], list[tuple[int, list[int]]]()
    kept: dict[str, Any] | None = None
    for size in sizes:
        group = [ElasticStream(loader_of(kind), epochs=EPOCHS, seed=7) for _ in range(size)]
        monkeypatch.setattr(elastic_stream, "group_rank", lambda: (0, 1))
        for one in group:
            if kept is not None:
                one.load_state_dict(kept)
        each = []
        for rank, one in enumerate(group):
            monkeypatch.setattr(elastic_stream, "group_rank", lambda rank=rank, size=size: (rank, size))
            found = []
            for part in one:
                found.append((one.epoch, numbers_of(part)[: None if one.weight else 0], one.state_dict()))
                if (len(found) == 2 and size != sizes[-1]) or len(found) == 99:
                    break
            each.append(found)
        for parts in zip(*each, strict=True):
            done.append((parts[0][0], [number for _, mine, _ in parts for number in mine]))
            kept = fold(parts[0][2]).unfolded()
            assert fold(parts[-1][2]).plain == fold(kept).plain, "all say the same of where they are"
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
        kept = fold(data.state_dict()).unfolded()
    assert found == [*range(SAMPLES), *range(SAMPLES)][: len(found)]
    assert len(found) > 1.5 * SAMPLES


def test_the_end_of_an_epoch_is_known_with_its_last_batch() -> None:
    data = ElasticStream(Protocol(), epochs=2)
    assert [data.ends_epoch for _ in data] == ([False] * 4 + [True]) * 2
    assert not list(data), "all is done"
    again = ElasticStream(Protocol(), epochs=2)
    again.load_state_dict(data.state_dict())
    assert not list(again)


def test_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(BadScript, match="a list does not say how far it is"):
        ElasticStream([1, 2])

    class Uneven(Protocol):
        def __iter__(self) -> Iterator[Any]:
            yield torch.zeros(3), torch.zeros(4)

    with pytest.raises(BadScript, match=r"tensors of \[3, 4\] samples"):
        next(iter(ElasticStream(Uneven())))
