"""Train a straight line with Elastic Horovod."""

from __future__ import annotations

import time
from typing import Any

from record import Record
from straight_line import SAMPLES, arguments, share


def main() -> None:
    """Load for a while, then train up to the limit in the record's folder."""
    given = arguments()
    record = Record(given.record)
    time.sleep(given.load_s)

    import horovod.torch as hvd
    import torch

    from bftrain_elastic import report

    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    @hvd.elastic.run  # type: ignore[untyped-decorator]  # Horovod has no types
    def train(state: Any) -> None:  # noqa: ANN401 - Horovod has no types
        if hvd.rank() == 0:
            record.write("began", step=state.position)
        while state.position < record.limit():
            x, y = share(state.position, hvd.rank(), hvd.size())
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            time.sleep(given.step_s)
            optimizer.step()
            state.position += 1
            state.counted += 1
            report(samples=SAMPLES, loss=loss)
            state.commit()

    ballast = torch.zeros(given.ballast_mb * 2**18)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, position=0, counted=0, ballast=ballast)
    train(state)
    if hvd.rank() == 0:
        record.write("ended", step=state.position, counted=state.counted)


main()
