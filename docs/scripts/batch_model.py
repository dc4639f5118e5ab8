"""How well speeds at other batches are derived from a curve: python docs/scripts/batch_model.py *_scalability.csv.

Of each of AdaptDL's sets the curve is that of the largest batch that was measured at every size. From it `goodput`
derives the speeds at the other batches, with the share of a step that is fixed and without.
docs/reference/objectives.md shows by how much they differ from the measured speeds.
"""  # noqa: INP001 - a script, which belongs to no package

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import numpy as np

from bftrain.cli.output import show, table
from bftrain.deciding.goodput import goodput
from bftrain.values.batch_scaling import BatchScaling
from bftrain.values.curve import SpeedCurve
from bftrain.values.problem import CompetingTask
from bftrain_datasets.workloads.catalogue import fixed_share, step_times

HEADER: Final = ("set", "median with `fixed_share`", "nine in ten within", "median without")


def speed_at(curve: SpeedCurve, size: int, batch: int, *, per_node: int, fixed_share: float) -> float:
    """Give the speed with a batch that is the only one allowed, so that each of its samples counts whole."""
    scaling = BatchScaling(initial=batch, largest=batch, noise_scale=0.0, per_node=per_node, fixed_share=fixed_share)
    task = CompetingTask(name="a", max_nodes=size, curve=curve, batch=scaling)
    return float(goodput.values(task, np.arange(size + 1))[size])


def errors(path: Path) -> tuple[list[float], list[float]]:
    """Give the relative errors of all derived speeds of a set: with the fixed share, and without."""
    measured = step_times(path)
    # The placement on the fewest nodes comes last among placements of equally many GPUs
    by_size = {gpus: measured[nodes, gpus] for nodes, gpus in sorted(measured, reverse=True)}
    batch = max(set.intersection(*map(set, by_size.values())))
    sizes = tuple(sorted(by_size))
    curve = SpeedCurve(nodes=sizes, rate=tuple(size * batch / by_size[size][batch] for size in sizes))
    shares = fixed_share(by_size[sizes[0]], curve), 0.0
    found: tuple[list[float], list[float]] = ([], [])
    for size, steps in by_size.items():
        for other, step_s in steps.items():
            for share, errors_of_share in zip(shares, found, strict=True):
                if other != batch:
                    derived = speed_at(curve, size, size * other, per_node=batch, fixed_share=share)
                    errors_of_share.append(abs(derived * step_s / (size * other) - 1.0))
    return found


def row(path: Path) -> tuple[str, ...]:
    """Give the row of a set."""
    with_share, without = errors(path)
    name = path.stem.removeprefix("adaptdl_").removesuffix("_scalability")
    return name, f"{median(with_share):.0%}", f"{quantiles(with_share, n=10)[-1]:.0%}", f"{median(without):.0%}"


if __name__ == "__main__":
    show(table("Speeds at other batches", HEADER, [row(Path(name)) for name in sys.argv[1:]]))
