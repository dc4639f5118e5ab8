"""Train a straight line with State and run, for the launchers native and process."""

from __future__ import annotations

import time

from record import Record
from straight_line import arguments, ballast, model_and_optimizer, one_step


def main() -> None:
    """Load for a while, then train up to the limit in the record's folder."""
    given = arguments()
    record = Record(given.record)
    time.sleep(given.load_s)

    from bftrain_elastic import State, run

    model, optimizer = model_and_optimizer()

    def train(state: State) -> None:
        if state.rank == 0:
            record.write("began", step=state.position)
        parallel = state.parallel()
        first, begun = state.position, time.time()
        while state.position < record.limit():
            one_step(state, parallel, optimizer, (state.rank, state.workers), given.step_s)
            if state.rank == 0 and state.position == first + 1:  # a stopped process may begin in a group long gone
                record.write("went_on", step=first, t=begun)

    state = State(model=model, optimizer=optimizer, position=0, counted=0, ballast=ballast(given.ballast_mb))
    run(state, train)
    if state.rank == 0:
        record.write("ended", step=state.position, counted=state.counted)


main()
