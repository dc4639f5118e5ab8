"""Train a straight line with Elastic Horovod."""

from __future__ import annotations

import time
from typing import Any

from record import Record
from straight_line import arguments, ballast, model_and_optimizer, one_step


def main() -> None:
    """Load for a while, then train up to the limit in the record's folder."""
    given = arguments()
    record = Record(given.record)
    time.sleep(given.load_s)

    import horovod.torch as hvd

    hvd.init()
    model, optimizer = model_and_optimizer()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    @hvd.elastic.run
    def train(state: Any) -> None:  # noqa: ANN401 - Horovod has no types
        if hvd.rank() == 0:
            record.write("began", step=state.position)
        first, begun = state.position, time.time()
        while state.position < record.limit():
            one_step(state, model, optimizer, (hvd.rank(), hvd.size()), given.step_s)
            if hvd.rank() == 0 and state.position == first + 1:  # a stopped process may begin in a group long gone
                record.write("went_on", step=first, t=begun)

    values = {"position": 0, "counted": 0, "ballast": ballast(given.ballast_mb)}
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, **values)
    train(state)
    if hvd.rank() == 0:
        record.write("ended", step=state.position, counted=state.counted)


main()
