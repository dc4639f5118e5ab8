"""Train with State and run, and make the same mistake again and again at the same step: ``--fault``."""

from __future__ import annotations

import argparse
import threading
import time
from typing import Any

from record import Record

SAMPLES = 12
AT_STEP = 20


class Mistakes:
    """What the last rank does instead of a step."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.formed_at = 0  # the step at which the present group began

    def stuck_for_ever(self, _state: Any) -> None:  # noqa: ANN401 - bftrain_elastic.State, imported late
        """Wait for a lock that is never released."""
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

    def stuck_if_alone(self, state: Any) -> None:  # noqa: ANN401 - as above
        if state.workers == 1:
            self.stuck_for_ever(state)

    def crash(self, state: Any) -> None:  # noqa: ANN401 - as above
        self._record.write("crash", rank=state.rank, step=state.position)
        raise ValueError("a batch of the wrong form")

    def crash_now_and_then(self, state: Any) -> None:  # noqa: ANN401 - as above
        """Crash ten steps after a group formed, if it has others that may notice it."""
        if state.workers > 1 and state.position >= self.formed_at + 10:
            self.crash(state)


def main() -> None:
    """Train for ever, or until the mistake."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", required=True)
    parser.add_argument(
        "--fault", choices=["deadlock", "collective", "one-rank-commit", "nan", "crash", "crashes", "none"]
    )
    parser.add_argument("--step-s", type=float, default=0.02)
    given = parser.parse_args()
    record = Record(given.record)

    import torch

    from bftrain_elastic import State, report, run

    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    mistakes = Mistakes(record)
    own = {"deadlock": mistakes.stuck_for_ever, "crash": mistakes.crash, "crashes": mistakes.crash_now_and_then}
    own |= {"one-rank-commit": mistakes.stuck_if_alone, "collective": lambda _: torch.distributed.barrier()}

    def train(state: State) -> None:
        parallel, mistakes.formed_at = state.parallel(), state.position
        while state.position < record.limit():
            due = state.position >= AT_STEP
            last = state.rank == state.workers - 1
            alone = due and given.fault == "one-rank-commit"  # or the collectives of both would meet, and break
            loss = torch.nn.functional.mse_loss((model if alone else parallel)(torch.ones(4, 4)), torch.ones(4, 1))
            if due and last:
                record.write("fault", rank=state.rank, step=state.position)
                own.get(given.fault, lambda _: None)(state)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(given.step_s)
            state.position += 1
            report(samples=SAMPLES, loss=float("nan") if due and given.fault == "nan" else loss)
            if not (due and last and given.fault == "one-rank-commit"):
                state.commit()

    state = State(model=model, optimizer=optimizer, position=0)
    run(state, train)


main()
