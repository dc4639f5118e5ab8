"""A small CNN on images of the size of MNIST's, drawn on the spot, for Elastic Horovod: python cnn_horovod.py.

Everything is as Horovod asks for it; the one line that is ours is marked.
"""

import argparse

import horovod.torch as hvd
import torch
from torch import nn

from bftrain_elastic import report

BATCH = 48  # samples of all workers together, at any number of workers


def images(position: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw the batch at ``position`` of an endless data set: noisy bars; the label is the bar's position."""
    random = torch.Generator().manual_seed(position)
    labels = torch.randint(0, 10, (BATCH,), generator=random)
    pixels = torch.randn(BATCH, 1, 28, 28, generator=random) * 0.3
    for image, label in zip(pixels, labels.tolist(), strict=True):
        image[0, :, 2 + 2 * label : 5 + 2 * label] += 1.0
    return pixels, labels


def network() -> nn.Module:
    """Two convolutions and two layers, about 40,000 weights."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(16 * 6 * 6, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """Train until all steps are done; called again after each change of the workers."""
    while state.position < arguments.steps:
        pixels, labels = images(state.position)
        mine = slice(hvd.rank(), None, hvd.size())  # every worker takes its share of the batch
        loss = nn.functional.cross_entropy(state.model(pixels[mine].to(device)), labels[mine].to(device))
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        state.position += 1
        report(samples=BATCH, loss=loss)  # ours: report progress, once a step
        state.commit()


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=1000)
arguments = parser.parse_args()

hvd.init()
torch.manual_seed(1)
torch.set_num_threads(1)
device = torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
model = network().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, position=0)
train(state)
if hvd.rank() == 0:
    print(f"done after {state.position} steps")  # noqa: T201 - a script may
