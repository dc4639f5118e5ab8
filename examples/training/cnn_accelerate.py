"""The small CNN of cnn.py with Hugging Face Accelerate: bftrain train cnn_accelerate.py --launcher process --nodes 1:4.

It is restarted at each change of size, and goes on from its State. What makes it elastic is marked 1 to 3; everything
else is as Accelerate has it. Needs: pip install accelerate
"""

import argparse

import torch
from accelerate import Accelerator
from torch import nn

from bftrain_elastic import ElasticLoader, State, report, run


def images(count: int) -> torch.utils.data.Dataset:
    """Draw noisy bars; the label is the bar's position."""
    labels = torch.randint(0, 10, (count,))
    pixels = torch.randn(count, 1, 28, 28) * 0.3
    for image, label in zip(pixels, labels.tolist(), strict=True):
        image[0, :, 2 + 2 * label : 5 + 2 * label] += 1.0
    return torch.utils.data.TensorDataset(pixels, labels)


def train(state: State) -> None:
    """Train all epochs."""
    accelerator = Accelerator(cpu=not torch.cuda.is_available())  # 1. where run() has formed the group
    model, optimizer = accelerator.prepare(state.model, state.optimizer)
    for pixels, labels in state.data:  # 2. continues at the state's position
        loss = nn.functional.cross_entropy(model(pixels.to(accelerator.device)), labels.to(accelerator.device))
        loss = state.data.weight * loss
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        report(samples=state.data.samples, loss=loss)
        state.commit()  # 3. a safe point to stop


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=200)
arguments = parser.parse_args()

torch.manual_seed(1)
torch.set_num_threads(1)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(),
    nn.Linear(16 * 6 * 6, 64), nn.ReLU(), nn.Linear(64, 10),
)  # fmt: skip
model.to(State().device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = ElasticLoader(images(2400), batch_size=240, epochs=arguments.epochs)
run(State(model=model, optimizer=optimizer, data=data), train)
