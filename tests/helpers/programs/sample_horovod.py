"""The sample training script for Elastic Horovod: ``python sample_horovod.py --steps 100``.

It adds one line to an ordinary Elastic Horovod script: ``report(...)``.
"""

from __future__ import annotations

import time
from typing import Any


def main() -> None:
    """Train, or fail as its arguments say."""
    import horovod.torch as hvd
    import torch
    from sample_torch import sample_arguments

    from bftrain_elastic import report

    arguments = sample_arguments(__doc__ or "")
    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    batch = 12  # divides among 1, 2, 3, 4 and 6 workers
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    @hvd.elastic.run  # type: ignore[untyped-decorator]  # Horovod has no types
    def train(state: Any) -> None:  # noqa: ANN401 - Horovod has no types
        while state.position < arguments.steps:
            x = torch.randn(batch, 4, generator=torch.Generator().manual_seed(state.position))
            y = x.sum(dim=1, keepdim=True)
            mine = slice(hvd.rank(), None, hvd.size())
            loss = torch.nn.functional.mse_loss(model(x[mine]), y[mine])
            optimizer.zero_grad()
            loss.backward()
            time.sleep(arguments.step_s)
            optimizer.step()
            state.position += 1
            report(samples=batch, loss=loss)
            state.commit()

    train(hvd.elastic.TorchState(model=model, optimizer=optimizer, position=0))


if __name__ == "__main__":
    main()
