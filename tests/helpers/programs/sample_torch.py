"""A training script that needs nothing but torch: it fits a straight line, with one commit for each step.

The conformance tests of launchers run it: ``python sample_torch.py --steps 100``.
"""

from __future__ import annotations

import argparse
import time


def sample_arguments(doc: str) -> argparse.Namespace:
    """Parse the arguments of a sample script, whose docstring is ``doc``; fail if they ask for it."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--step-s", type=float, default=0.005, help="how long a step takes at least")
    parser.add_argument("--fail", action="store_true", help="die at the start")
    arguments = parser.parse_args()
    if arguments.fail:
        raise ValueError("as it was asked to")
    return arguments


def main() -> None:
    """Train, or fail as its arguments say."""
    import torch

    from bftrain_elastic import State, report, run

    arguments = sample_arguments(__doc__ or "")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    batch = 12  # divides among 1, 2, 3, 4 and 6 workers
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def train(state: State) -> None:
        parallel = state.parallel()
        while state.position < arguments.steps:
            x = torch.randn(batch, 4, generator=torch.Generator().manual_seed(state.position))
            y = x.sum(dim=1, keepdim=True)
            mine = slice(state.rank, None, state.workers)
            loss = torch.nn.functional.mse_loss(parallel(x[mine]), y[mine])
            optimizer.zero_grad()
            loss.backward()
            time.sleep(arguments.step_s)
            optimizer.step()
            state.position += 1
            report(samples=batch, loss=loss)
            state.commit()

    run(State(model=model, optimizer=optimizer, position=0), train)


if __name__ == "__main__":
    main()
