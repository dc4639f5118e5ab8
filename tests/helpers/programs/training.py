"""Train a straight line with State and run, for the launchers native, process and torchrun."""

from __future__ import annotations

import time

from record import Record
from straight_line import SAMPLES, arguments, share


def main() -> None:
    """Load for a while, then train up to the limit in the record's folder."""
    given = arguments()
    record = Record(given.record)
    time.sleep(given.load_s)

    import torch

    from bftrain_elastic import State, report, run

    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def train(state: State) -> None:
        if state.rank == 0:
            record.write("began", step=state.position)
        parallel = state.parallel()
        while state.position < record.limit():
            x, y = share(state.position, state.rank, state.workers)
            loss = torch.nn.functional.mse_loss(parallel(x), y)
            optimizer.zero_grad()
            loss.backward()
            time.sleep(given.step_s)
            optimizer.step()
            state.position += 1
            state.counted += 1
            report(samples=SAMPLES, loss=loss)
            state.commit()

    ballast = torch.zeros(given.ballast_mb * 2**18)
    state = State(model=model, optimizer=optimizer, position=0, counted=0, ballast=ballast)
    run(state, train)
    if state.rank == 0:
        record.write("ended", step=state.position, counted=state.counted)


main()
