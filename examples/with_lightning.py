"""A LightningModule and one additional callback: what does the network look at?

Trains the paper's small network to distinguish a T from an L in noise. Writes demo/agop.safetensors.
"""

from __future__ import annotations

import warnings

import lightning as L
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import agop
from agop.bench.networks import CNN8by8
from agop.bench.scenarios import xai_tris
from agop.integrations.lightning import AGOPCallback


class Classifier(L.LightningModule):
    """An ordinary classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.net = CNN8by8()

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N,2) of images (N,1,8,8)."""
        return self.net(images)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        """Cross-entropy."""
        images, labels = batch
        return nn.functional.cross_entropy(self(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main() -> None:
    warnings.filterwarnings("ignore", "(?s).*(many workers|LeafSpec)")  # for larger data; for a later torch
    L.seed_everything(0, verbose=False)
    training, _, test = xai_tris("linear")
    model, callback = Classifier(), AGOPCallback(out="demo/agop.safetensors")
    trainer = L.Trainer(
        max_epochs=10, accelerator="cpu", callbacks=[callback], logger=False, enable_checkpointing=False,
        enable_model_summary=False, enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(model, DataLoader(TensorDataset(training.images, training.labels), batch_size=64, shuffle=True))
    print(callback.prior, "in demo/agop.safetensors")
    for method in ("random", "vanilla", "agop-weighted"):
        maps = agop.explain(model, test.images, method, prior=callback.prior)
        print(f"{method:15} {float(agop.metrics.energy(maps, test.masks).nanmean()):.2f} of the map is on the shape")


if __name__ == "__main__":
    main()
