"""Real groups that divide batches unevenly: gradients and losses are those of one process."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.helpers.workers import Workers

pytestmark = pytest.mark.torch

BEGIN = """
import json
import torch
from bftrain_elastic import State, report, run

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

def batch(position, samples):
    x = torch.randn(samples, 4, generator=torch.Generator().manual_seed(position))
    return x, x.prod(dim=1, keepdim=True)
"""
ACCUMULATING = (
    BEGIN
    + """
def train(state):
    parallel = state.parallel()
    while state.position < 100000:
        optimizer.zero_grad()
        (x, y), (more_x, more_y) = batch(state.position, 10), batch(-1 - state.position, 4)
        with parallel.no_sync():  # nothing is exchanged before the second part
            mine, weight = state.share(10)
            first = 10 / 14 * weight * torch.nn.functional.mse_loss(parallel(x[mine]), y[mine])
            first.backward()
        mine, weight = state.share(4)
        loss = 4 / 14 * weight * torch.nn.functional.mse_loss(parallel(more_x[mine]), more_y[mine])
        loss.backward()
        optimizer.step()
        state.position += 1
        if state.rank == 0:
            weights = [number for one in model.parameters() for number in one.flatten().tolist()]
            print(json.dumps({"position": state.position, "workers": state.workers, "weights": weights}), flush=True)
        report(samples=14, loss=first.item() + loss.item())
        state.commit()

run(State(model=model, optimizer=optimizer, position=0), train)
"""
)


def test_uneven_shares_and_accumulation_train_as_one_process_at_any_size(tmp_path: Path) -> None:
    with Workers(tmp_path, ACCUMULATING, count=3) as workers:
        workers.ready()
        first, members = workers.all[0], workers.all
        for generation, size in enumerate((1, 2, 3, 2), 1):
            workers.go(generation, members[:size])
            since = len(first.of("report"))
            while len(first.of("report")) < since + 5:
                first.hear("report")
            if generation < 4:
                workers.gather(generation + 1, members[:size])
        lines = {one["position"]: one for one in first.lines()}
        losses = {one["step"]: one["loss"] for one in first.of("report")}
    assert {one["workers"] for one in lines.values()} == {1, 2, 3}

    import torch  # noqa: PLC0415 - only where this test runs: every process of pytest reads this file

    torch.manual_seed(1)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for position in range(max(losses)):
            parts = ((position, 10), (-1 - position, 4))
            x = torch.cat([torch.randn(n, 4, generator=torch.Generator().manual_seed(seed)) for seed, n in parts])
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), x.prod(dim=1, keepdim=True))
            loss.backward()
            optimizer.step()
            weights = [number for one in model.parameters() for number in one.flatten().tolist()]
            assert lines[position + 1]["weights"] == pytest.approx(weights, rel=1e-9, abs=1e-11)
            assert losses[position + 1] == pytest.approx(loss.item(), rel=1e-9)
    finally:
        torch.set_default_dtype(before)


EPOCHS = (
    BEGIN
    + """
import time
from bftrain_elastic import ElasticLoader
SAMPLES, EPOCHS = 603, 2

def train(state):
    parallel = state.parallel()
    for numbers in state.data:
        loss = state.data.weight * parallel(torch.ones(len(numbers), 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        numbers = numbers.tolist() if state.data.weight else []
        print(json.dumps({"epoch": state.data.epoch, "numbers": numbers, "workers": state.workers}), flush=True)
        report(samples=state.data.samples, loss=loss)
        if state.data.ends_epoch and state.rank == 0:
            with torch.no_grad():
                state.found = [*state.found, state.model(torch.ones(1, 4)).item()]
        state.commit()

data = ElasticLoader(range(SAMPLES), batch_size=8, epochs=EPOCHS, seed=1, num_workers=NUM_WORKERS)
state = State(model=model, optimizer=optimizer, data=data, found=[])
run(state, train)
print(json.dumps({"found": state.found}), flush=True)
"""
)


@pytest.mark.parametrize(
    ("num_workers", "resizes"), [(2, 5), *(pytest.param(*case, marks=pytest.mark.soak) for case in ((0, 8), (2, 20)))]
)
def test_every_sample_is_trained_once_an_epoch_through_resizes(tmp_path: Path, num_workers: int, resizes: int) -> None:
    dice = random.Random(num_workers + resizes)  # noqa: S311 - a test repeats itself
    with Workers(tmp_path, EPOCHS.replace("NUM_WORKERS", str(num_workers)), count=3) as workers:
        workers.ready()
        members = workers.all[:1]
        for generation in range(1, resizes + 2):
            workers.go(generation, members)
            if generation <= resizes:
                step = members[0].hear("report")["step"]
                members[0].hear("report", lambda one, step=step: one["step"] >= step + 2)  # type: ignore[misc]  # bound at once
                workers.gather(generation + 1, members)
                members = workers.all[: dice.choice([n for n in (1, 2, 3) if n != len(members)])]
        members[0].hear("done")
        for worker in members:
            worker.ends()
        lines = [line for worker in workers.all for line in worker.lines()]
    ends = [one["found"] for one in lines if "found" in one]
    assert len(ends[0]) == 2
    assert ends == [ends[0]] * len(members), "all know what the first worker found after each epoch"
    lines = [one for one in lines if "found" not in one]
    for epoch in range(2):
        assert sorted(n for one in lines if one["epoch"] == epoch for n in one["numbers"]) == list(range(603))
    assert {one["workers"] for one in lines} == {1, 2, 3}
