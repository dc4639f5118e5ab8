"""A small CNN on images of the size of MNIST's, drawn on the spot: python cnn.py, or bftrain train cnn.py --nodes 1:4.

What makes it elastic is marked 1 to 5; everything else is plain PyTorch.
"""

import argparse

import torch
from torch import nn

from bftrain_elastic import State, report, run  # 1. three names

BATCH = 240  # samples of all workers together, at any number of workers


def images(position: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw the batch at ``position`` of an endless data set: noisy bars; the label is the bar's position."""
    random = torch.Generator().manual_seed(position)
    labels = torch.randint(0, 10, (BATCH,), generator=random)
    pixels = torch.randn(BATCH, 1, 28, 28, generator=random) * 0.3
    for image, label in zip(pixels, labels.tolist(), strict=True):
        image[0, :, 2 + 2 * label : 5 + 2 * label] += 1.0
    return pixels, labels


def network() -> nn.Module:
    """Two convolutions and two layers, about 50,000 weights."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(16 * 6 * 6, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def train(state: State) -> None:
    """Train until all steps are done; called again after each change of the workers."""
    model = state.parallel()  # 2. the model as the current group of workers trains it
    while state.position < arguments.steps:  # 3. continue from the state's position
        pixels, labels = images(state.position)
        mine, weight = state.share(BATCH)  # every worker takes its share of the batch
        loss = weight * nn.functional.cross_entropy(model(pixels[mine].to(state.device)), labels[mine].to(state.device))
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        state.position += 1
        report(samples=BATCH, loss=loss)  # 4. report progress, once a step
        state.commit()  # 5. a safe point to stop


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=2000)
arguments = parser.parse_args()

torch.manual_seed(1)
torch.set_num_threads(1)
device = State().device
model = network().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
state = State(model=model, optimizer=optimizer, position=0)
run(state, train)
if state.rank == 0:
    print(f"done after {state.position} steps")  # noqa: T201 - a script may
