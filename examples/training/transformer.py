"""A small transformer that learns to repeat what it read, from sequences drawn on the spot.

python transformer.py, or bftrain train transformer.py --nodes 1:4. Compared with cnn.py it keeps a learning-rate
schedule and a best loss in the state too, and commits only every fifth step.
"""

import argparse

import torch
from torch import nn

from bftrain_elastic import State, report, run

BATCH, LENGTH, LETTERS, WIDTH = 48, 16, 12, 64
HALF = LENGTH // 2


def sequences(position: int) -> torch.Tensor:
    """Draw the batch at ``position``: the second half of each sequence repeats the first."""
    random = torch.Generator().manual_seed(position)
    half = torch.randint(0, LETTERS, (BATCH, HALF), generator=random)
    return torch.cat([half, half], dim=1)


class Reader(nn.Module):
    """Two causal layers, and a prediction of the next letter at each position."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=2 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, num_layers=2)
        self.guess = nn.Linear(WIDTH, LETTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return a score for each letter at each position except the last."""
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH - 1, device=text.device)
        return self.guess(self.layers(self.letters(text) + self.places[:-1], mask=mask, is_causal=True))


def train(state: State) -> None:
    """Train until all steps are done; called again after each change of the workers."""
    model = state.parallel()
    while state.position < arguments.steps:
        mine, weight = state.share(BATCH)
        text = sequences(state.position)[mine].to(state.device)
        scores = model(text[:, :-1])
        # The first half is random, so only the loss of the second half counts
        loss = weight * nn.functional.cross_entropy(scores[:, HALF - 1 :].flatten(0, 1), text[:, HALF:].flatten())
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        state.schedule.step()
        state.position += 1
        state.best = min(state.best, loss.item())  # each worker sees its share of the batch: rank 0's loss counts
        report(samples=BATCH, loss=loss)
        if state.position % 5 == 0:  # a change waits for the next commit, a lost worker returns to the previous one
            state.commit()


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=1500)
arguments = parser.parse_args()

torch.manual_seed(1)
torch.set_num_threads(1)
model = Reader().to(State().device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=arguments.steps)
state = State(model=model, optimizer=optimizer, schedule=schedule, position=0, best=1e9)
run(state, train)
if state.rank == 0:
    print(f"done after {state.position} steps, best loss {state.best:.4f}")  # noqa: T201 - a script may
