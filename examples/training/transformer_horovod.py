"""A small transformer that learns to sort, for Elastic Horovod: python transformer_horovod.py.

The model reads a row of letters and then the same letters sorted, and predicts each letter from the previous ones. The
script is standard Elastic Horovod; the only line for bftrain is marked "ours". The learning rate warms up as a function
of ``state.position``, so the schedule needs no extra state.
"""

import argparse

import horovod.torch as hvd
import torch
from torch import nn

from bftrain_elastic import report

BATCH, LETTERS, LENGTH, WIDTH = 48, 16, 8, 64  # BATCH: samples of all workers together


class Sorter(nn.Module):
    """A decoder of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.places = nn.Parameter(torch.randn(2 * LENGTH - 1, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, LETTERS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(2 * LENGTH - 1))

    def forward(self, row: torch.Tensor) -> torch.Tensor:
        """Give the scores of the letters of the sorted half."""
        seen = self.layers(self.letters(row) + self.places, mask=self.mask, is_causal=True)
        return self.head(seen[:, LENGTH - 1 :])


def rows(position: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw the batch at ``position`` of an endless data set: inputs and targets."""
    random = torch.Generator().manual_seed(position)
    letters = torch.randint(0, LETTERS, (BATCH, LENGTH), generator=random)
    ordered = letters.sort(dim=1).values
    return torch.cat([letters, ordered[:, :-1]], dim=1), ordered


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """Train until all steps are done; called again after each change of the workers."""
    while state.position < arguments.steps:
        seen, wanted = rows(state.position)
        mine = slice(hvd.rank(), None, hvd.size())  # every worker takes its share of the batch
        scores = state.model(seen[mine].to(device))
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), wanted[mine].flatten().to(device))
        state.optimizer.param_groups[0]["lr"] = 2e-3 * min(1.0, (state.position + 1) / 50)
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        state.position += 1
        report(samples=BATCH, loss=loss)  # ours: report progress, once a step
        state.commit()


parser = argparse.ArgumentParser(description="A small transformer that learns to sort, for Elastic Horovod.")
parser.add_argument("--steps", type=int, default=1000)
arguments = parser.parse_args()

hvd.init()
torch.manual_seed(1)
torch.set_num_threads(1)
device = torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
model = Sorter().to(device)
optimizer = torch.optim.AdamW(model.parameters())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, position=0)
train(state)
if hvd.rank() == 0:
    print(f"done after {state.position} steps")  # noqa: T201 - a script may
