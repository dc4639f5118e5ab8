"""Large values: it is seen that they were changed without a look at their numbers."""

from __future__ import annotations

import pytest

from bftrain_elastic.worker.state_tree import LargeValues, taken

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")
pytestmark = pytest.mark.torch


def test_another_tensor_a_write_and_another_number_beside_it_are_changes() -> None:
    large, values = LargeValues(), {"best": {"loss": 1.0, "weights": torch.zeros(9)}, "ema": torch.zeros(9)}
    large.update(values)
    assert large.changed == ("best", "ema")
    large.update(values)
    assert large.changed == ()
    nothing = large.digest
    values["ema"] += 1
    large.update(values)
    assert large.changed == ("ema",)
    assert large.digest != nothing
    large.update(values | {"best": {"loss": 0.5, "weights": values["best"]["weights"]}})
    assert large.changed == ("best",)
    large.update(values | {"best": {"loss": 0.5, "weights": torch.zeros(9)}})
    assert large.changed == ("best",)
    assert len(large.tree(large.changed).tensors) == 1
    assert len(large.tree(large.names).tensors) == 2


@pytest.mark.parametrize("writes", [2, 3, 4])
def test_a_tensor_in_the_memory_of_a_freed_one_is_a_change(writes: int) -> None:
    large, values = LargeValues(), {"nested": {"weights": torch.zeros(20_000)}}
    large.update(values)
    for _ in range(writes):
        values["nested"]["weights"] = torch.ones(20_000)
    large.update(values)
    assert large.changed == ("nested",)


def test_tensors_that_are_there_are_written_to_and_others_come_as_they_are() -> None:
    first, mine = LargeValues(), torch.zeros(3)
    first.update({"ema": torch.ones(3), "best": {"weights": torch.ones(2)}})
    values = taken(first.tree(first.names), {"ema": mine, "best": {}})
    assert values["best"]["weights"].tolist() == [1, 1]
    assert values["ema"].tolist() == [1, 1, 1]
    first.update({"ema": torch.full((3,), 2.0)})
    taken(first.tree(first.changed), {"ema": mine})
    assert mine.tolist() == [2, 2, 2], "the script may hold it itself"
