"""A straight line to fit: the arguments and the data of the trainings that fit one."""

from __future__ import annotations

import argparse
from typing import Any, Final

SAMPLES: Final = 12  # of all workers in a step


def arguments() -> argparse.Namespace:
    """Read what all of them are told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", required=True)
    parser.add_argument("--load-s", type=float, default=0.0, help="how long it takes until the training begins")
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--ballast-mb", type=int, default=0, help="how much larger the state is")
    return parser.parse_args()


def share(position: int, rank: int, workers: int) -> tuple[Any, Any]:
    """Return one worker's share of the batch at ``position`` of the data."""
    import torch

    x = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(position))
    y = x.sum(dim=1, keepdim=True)
    return x[rank::workers], y[rank::workers]
