"""Small but real trainings for demos: ``python demo_training.py pictures``, letters or waves.

They generate their data and learn it in about a minute. examples/training shows how to write such scripts.
"""

from __future__ import annotations

import argparse
import time
from typing import Final

_BATCH: Final = 96  # divides among up to 4, 6 and 8 workers
_CLASSES: Final = 10
_INPUTS: Final = {"pictures": 400, "letters": 40, "waves": 64}  # numbers of a sample


def main() -> None:
    """Train a network to find which of some random directions a sample is closest to."""
    import torch

    from bftrain_elastic import State, report, run

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=sorted(_INPUTS))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--sample-s", type=float, default=0.0005, help="minimum time of a sample, in seconds")
    arguments = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(1)
    device, inputs = State().device, _INPUTS[arguments.what]
    directions, noise = torch.randn(_CLASSES, inputs), 0.45 * inputs**0.5
    network = torch.nn.Sequential(torch.nn.Linear(inputs, 64), torch.nn.ReLU(), torch.nn.Linear(64, _CLASSES))
    network = network.to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)

    def train(state: State) -> None:
        model = state.parallel()
        while state.position < arguments.steps:
            begun = time.monotonic()
            generator = torch.Generator().manual_seed(state.position)
            y = torch.randint(0, _CLASSES, (_BATCH,), generator=generator)
            x = directions[y] + noise * torch.randn(_BATCH, inputs, generator=generator)
            mine = slice(state.rank, None, state.workers)
            loss = torch.nn.functional.cross_entropy(model(x[mine].to(device)), y[mine].to(device))
            optimizer.zero_grad()
            loss.backward()
            # Simulates a larger network: more nodes are then faster even on a small machine
            time.sleep(max(0.0, arguments.sample_s * _BATCH / state.workers - (time.monotonic() - begun)))
            optimizer.step()
            state.position += 1
            report(samples=_BATCH, loss=loss)
            state.commit()
            if state.rank == 0 and state.position % 100 == 0:
                print(f"step {state.position}: loss {loss.item():.4f} on {state.workers} workers", flush=True)  # noqa: T201 - a script may

    run(State(model=network, optimizer=optimizer, position=0), train)


if __name__ == "__main__":
    main()
