"""Count in values of all sizes that the first worker alone writes: ``RECORD WRITES``, trained natively or with Horovod.

The first worker waits after its first step of each group of two, so that a test can take it there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import torch

from bftrain_elastic import ShardedTraining, State, report, run

RECORD, WRITES = Path(sys.argv[1]), sys.argv[2]
LARGE: Final = 20_000  # numbers: 80 KB, more than a commit compares
WAITS_S: Final = 1.0


def write(state: Any, rank: int) -> None:  # noqa: ANN401 - a State, or one of Horovod
    now = float(state.position)
    state.common += 1  # on all workers, in place
    state.history.append(state.position)
    if rank == 0:
        state.count = state.position
        if WRITES == "crossing":  # the bound above which values are large
            state.large = torch.full((16_000 + state.position % 3 * 500,), now)
        else:
            state.large[:] = now
            state.replaced = torch.full((LARGE,), now)
            state.nested["in"][0] = torch.full((LARGE,), now)
            state.nested["in"][0] = torch.full((LARGE,), now)  # may get the memory of the tensor two writes before
    elif WRITES == "others":
        state.theirs[:] = -now


def note(what: str, state: Any, rank: int) -> None:  # noqa: ANN401 - as above
    values = torch.cat([state.large, state.common, state.replaced, state.nested["in"][0]]).unique().tolist()
    line = {"what": what, "rank": rank, "position": state.position, "count": state.count}
    line |= {
        "large": values,
        "history": len(state.history),
        "theirs": state.theirs.unique().tolist(),
        "pid": os.getpid(),
    }
    with RECORD.open("a") as file:
        file.write(json.dumps(line) + "\n")


def train(state: Any, rank: int, workers: int) -> None:  # noqa: ANN401 - as above
    first = state.position
    note("began", state, rank)
    while True:
        time.sleep(0.03)
        state.position += 1
        write(state, rank)
        report(samples=1, loss=1.0)
        state.commit()
        if workers == 2 and state.position == first + 1:
            note("committed", state, rank)
            time.sleep(WAITS_S if rank == 0 else 0.0)


def main() -> None:
    torch.set_num_threads(1)
    large, replaced, nested, common, theirs = (torch.zeros(LARGE) for _ in range(5))
    values: dict[str, Any] = {"position": 0, "count": 0, "history": [], "large": large, "common": common}
    values |= {"replaced": replaced, "nested": {"in": [nested]}, "theirs": theirs}
    if WRITES == "crossing":
        values |= {"replaced": torch.zeros(0), "nested": {"in": [torch.zeros(0)]}}
    if os.environ.get("BFTRAIN_LAUNCHER") == "horovod":
        import horovod.torch as hvd

        hvd.init()
        train_all = hvd.elastic.run(lambda state: train(state, hvd.rank(), hvd.size()))
        train_all(hvd.elastic.TorchState(**values))
        return
    if WRITES == "sharded":
        from torch.distributed.fsdp import fully_shard

        parts = ShardedTraining(lambda: torch.nn.Linear(8, 8), fully_shard, torch.optim.SGD)
        values |= {"parts": parts}

    def train_native(state: State) -> None:
        if WRITES == "sharded":
            state.parts.join()
        train(state, state.rank, state.workers)

    run(State(**values), train_native)


main()
