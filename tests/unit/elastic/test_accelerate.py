"""Accelerators of one group after another: what one prepared does not stay in the next."""

from __future__ import annotations

import os

import pytest

from bftrain_elastic import State
from bftrain_elastic.accelerate import group_accelerator, group_environment
from bftrain_elastic.errors import BadScript

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")
pytestmark = pytest.mark.torch


def test_the_group_is_shown_in_the_environment_and_then_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "7")
    before = dict(os.environ)
    with group_environment(1, 3, threads=2):
        assert [os.environ[name] for name in ("RANK", "WORLD_SIZE", "OMP_NUM_THREADS")] == ["1", "3", "2"]
    assert dict(os.environ) == before
    with group_environment(0, 1, threads=2):
        assert "WORLD_SIZE" not in os.environ


def test_without_accelerate_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "accelerate", None)
    with pytest.raises(BadScript, match="pip install accelerate"):
        group_accelerator(State(position=0))


@pytest.mark.filterwarnings("ignore")  # of Accelerate itself
def test_a_model_is_prepared_again_for_each_group() -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed here; install it with pip")
    model = torch.nn.Linear(2, 1)
    state = State(model=model, optimizer=torch.optim.Adam(model.parameters()))
    original = model.forward
    for _ in range(3):
        accelerator = group_accelerator(state, mixed_precision="bf16")
        prepared, optimizer = accelerator.prepare(state.model, state.optimizer)
        assert accelerator.num_processes == 1
        assert vars(model)["_original_forward"] == original, "not what an earlier group put around it"
        accelerator.backward(prepared(torch.ones(3, 2)).sum())
        optimizer.step()
    assert state.optimizer.state_dict()["state"][0]["step"] == 3
    type(accelerator.state)._reset_state(reset_partial_state=True)  # noqa: SLF001 - or other tests see it
