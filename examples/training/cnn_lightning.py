"""The small CNN of cnn.py as a LightningModule, which is restarted from its checkpoint at each change of size.

bftrain train cnn_lightning.py --launcher process --nodes 1:4. What makes it elastic is marked 1 to 4; everything else
is as Lightning has it. Workers start sooner with --set preload=lightning. Needs: pip install lightning
"""

import argparse
import os
import tempfile

import lightning
import torch
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from torch import nn

from bftrain_elastic.lightning import ElasticCallback  # 1.


class Classifier(lightning.LightningModule):
    """Predicts the position of a bar in a noisy picture."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(),
            nn.Linear(16 * 6 * 6, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss of a batch."""
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        """Log the loss of a validation batch."""
        self.log("validation_loss", nn.functional.cross_entropy(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self) -> dict[str, object]:
        """Return the optimizer and the schedule of its learning rate."""
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)}


def images(count: int) -> torch.utils.data.Dataset:
    """Draw noisy bars; the label is the bar's position."""
    labels = torch.randint(0, 10, (count,))
    pixels = torch.randn(count, 1, 28, 28) * 0.3
    for image, label in zip(pixels, labels.tolist(), strict=True):
        image[0, :, 2 + 2 * label : 5 + 2 * label] += 1.0
    return torch.utils.data.TensorDataset(pixels, labels)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=200)
arguments = parser.parse_args()

lightning.seed_everything(1)
torch.set_num_threads(1)
folder = os.environ.get("BFTRAIN_FOLDER") or tempfile.mkdtemp()
data = images(2400)
elastic = ElasticCallback(folder, samples=len(data), batch_size=240)  # 2. samples of all workers together
batches = torch.utils.data.DataLoader(data, batch_sampler=elastic)  # 3.
new = torch.utils.data.DataLoader(images(240), batch_size=240)
quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
workers = int(os.environ.get("WORLD_SIZE", "1"))
group = {"num_nodes": workers, "strategy": "ddp", "plugins": [TorchElasticEnvironment()]} if workers > 1 else {}
trainer = lightning.Trainer(
    max_epochs=arguments.epochs, devices=1, use_distributed_sampler=False, callbacks=[elastic], **group, **quiet
)
trainer.fit(Classifier(), batches, new, ckpt_path=elastic.checkpoint)  # 4.
