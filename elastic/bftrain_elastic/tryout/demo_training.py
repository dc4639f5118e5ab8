"""Three small but real trainings for demos: ``python demo_training.py pictures``, letters or waves.

They generate their data and learn it in about a minute. examples/training shows how to write such scripts.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

_BATCH: Final = 96  # divides among up to 4, 6 and 8 workers


def main() -> None:
    """Train the chosen one."""
    import torch

    from bftrain_elastic import State, report, run

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=sorted(_MAKERS))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--sample-s", type=float, default=0.0005, help="how long a sample takes at least")
    arguments = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(1)
    device = State().device
    network, draw, loss_of = _MAKERS[arguments.what](torch)
    network = network.to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)

    def train(state: State) -> None:
        model = state.parallel()
        while state.position < arguments.steps:
            begun = time.monotonic()
            x, y = draw(torch.Generator().manual_seed(state.position))
            mine = slice(state.rank, None, state.workers)
            loss = loss_of(model(x[mine].to(device)), y[mine].to(device))
            optimizer.zero_grad()
            loss.backward()
            # As if the network were larger: so more nodes are faster on a small machine too
            time.sleep(max(0.0, arguments.sample_s * _BATCH / state.workers - (time.monotonic() - begun)))
            optimizer.step()
            state.position += 1
            report(samples=_BATCH, loss=loss)
            state.commit()
            if state.rank == 0 and state.position % 100 == 0:
                print(f"step {state.position}: loss {loss.item():.4f} on {state.workers} workers", flush=True)  # noqa: T201 - a script may

    run(State(model=network, optimizer=optimizer, position=0), train)


def _pictures(torch: Any) -> tuple[Any, Callable[..., Any], Callable[..., Any]]:  # noqa: ANN401 - torch, imported late
    """Find the bar in a noisy picture: a small convolutional network."""
    nn = torch.nn
    network = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(16 * 4 * 4, 48), nn.ReLU(), nn.Linear(48, 10),
    )  # fmt: skip

    def draw(dice: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(0, 10, (_BATCH,), generator=dice)
        pictures = torch.randn(_BATCH, 1, 20, 20, generator=dice) * 0.6
        for picture, label in zip(pictures, labels.tolist(), strict=True):
            picture[0, :, 2 * label : 2 * label + 2] += 1.0
        return pictures, labels

    return network, draw, nn.functional.cross_entropy


def _letters(torch: Any) -> tuple[Any, Callable[..., Any], Callable[..., Any]]:  # noqa: ANN401 - as above
    """Predict the next letter of a repeated sequence: a recurrent network."""
    nn, letters, half = torch.nn, 8, 5

    class Reader(nn.Module):  # type: ignore[misc,name-defined]  # torch is imported late
        def __init__(self) -> None:
            super().__init__()
            self.letters = nn.Embedding(letters, 24)
            self.memory = nn.GRU(24, 64, batch_first=True)
            self.guess = nn.Linear(64, letters)

        def forward(self, text: torch.Tensor) -> Any:  # noqa: ANN401 - a tensor
            return self.guess(self.memory(self.letters(text))[0])[:, half - 1 :].flatten(0, 1)

    def draw(dice: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        row = torch.randint(0, letters, (_BATCH, half), generator=dice)
        return torch.cat([row, row], dim=1)[:, :-1], row

    return Reader(), draw, lambda guess, row: nn.functional.cross_entropy(guess, row.flatten())


def _waves(torch: Any) -> tuple[Any, Callable[..., Any], Callable[..., Any]]:  # noqa: ANN401 - as above
    """Remove noise from waves: an autoencoder."""
    nn = torch.nn
    network = nn.Sequential(
        nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 6), nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 64)
    )
    places = torch.linspace(0, 6.3, 64)

    def draw(dice: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        about = torch.rand(_BATCH, 2, 1, generator=dice)
        waves = torch.sin((1 + 3 * about[:, 0]) * places + 6.3 * about[:, 1])
        return waves + 0.3 * torch.randn(_BATCH, 64, generator=dice), waves

    return network, draw, nn.functional.mse_loss


_MAKERS: Final = {"pictures": _pictures, "letters": _letters, "waves": _waves}

if __name__ == "__main__":
    main()
