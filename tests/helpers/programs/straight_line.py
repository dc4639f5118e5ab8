"""A straight line to fit: the arguments and the data of the trainings that fit one."""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

SAMPLES: Final = 12  # of all workers in a step


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", required=True)
    parser.add_argument("--load-s", type=float, default=0.0, help="how long it takes until the training begins")
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--ballast-mb", type=int, default=0, help="how much larger the state is")
    return parser.parse_args()


def model_and_optimizer() -> tuple[Any, Any]:
    """Return a straight line that is not fitted yet, and what fits it."""
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def ballast(megabytes: int) -> Any:  # noqa: ANN401 - torch.Tensor, imported late
    import torch

    return torch.zeros(megabytes * 2**18)


def one_step(state: Any, model: Any, optimizer: Any, place: tuple[int, int], step_s: float) -> None:  # noqa: ANN401 - as above
    """Train on one worker's share of the next batch; ``place`` is the worker's rank, and how many there are."""
    import torch

    from bftrain_elastic import report

    x, y = share(state.position, *place)
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    time.sleep(step_s)
    optimizer.step()
    state.position += 1
    state.counted += 1
    report(samples=SAMPLES, loss=loss)
    state.commit()


def share(position: int, rank: int, workers: int) -> tuple[Any, Any]:
    """Return one worker's share of the batch at ``position`` of the data."""
    import torch

    x = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(position))
    y = x.sum(dim=1, keepdim=True)
    return x[rank::workers], y[rank::workers]
