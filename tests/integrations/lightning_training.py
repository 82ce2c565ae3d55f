"""A small LightningModule with batch norm, dropout and Adam, and Trainers for it."""

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests import zoo

# Lightning's own: advice for large data and GPUs, and for settings that these tests choose on purpose.
IGNORED = [
    "ignore:.*does not have many workers",
    "ignore:.*The number of training batches",
    "ignore:You defined a `validation_step` but have no",
    "ignore:.*Running in `fast_dev_run` mode",
    "ignore:Checkpoint directory .* exists and is not empty",
    "ignore:Found .* module.s. in eval mode",
    "ignore:.*Please add the following callbacks. ..ModelCheckpoint",
    "ignore:.*LeafSpec:FutureWarning",  # Lightning 2.6 on a later torch
]


def loader(count=40, shuffle=False):
    return DataLoader(TensorDataset(zoo.images(count), torch.arange(count) % 3), batch_size=8, shuffle=shuffle)


class Resumable(list):
    """A list of batches that can resume in the middle of an epoch."""

    next = 0

    def __iter__(self):
        self.next %= len(self)
        while self.next < len(self):
            self.next += 1
            yield self[self.next - 1]

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


class Lit(L.LightningModule):
    """With `seeded`, dropout depends on the step alone, not on earlier random numbers."""

    def __init__(self, seeded=True):
        super().__init__()
        torch.manual_seed(0)
        self.net = zoo.batch_normed().train()
        self.seeded, self.losses = seeded, []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        if self.seeded:
            torch.manual_seed(self.trainer.fit_loop.epoch_loop.total_batch_idx)
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        assert torch.is_inference_mode_enabled() or self.trainer.state.fn == "fit"
        assert not torch.is_grad_enabled()
        assert not self.training
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        if not self.trainer.barebones:
            self.log("val", loss)

    test_step = validation_step

    def predict_step(self, batch, index):
        return self.net(batch[0])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def trainer_with(*callbacks, **options):
    saves = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
    defaults = {"max_epochs": 2, "logger": False, "enable_checkpointing": saves}
    if not options.get("barebones"):
        defaults |= {"enable_progress_bar": False, "enable_model_summary": False}
    return L.Trainer(accelerator="cpu", devices=1, callbacks=list(callbacks), **defaults | options)


def fit(*callbacks, module=None, train=None, ckpt_path=None, **options):
    """The module and the Trainer after a fit."""
    module = Lit() if module is None else module
    trainer = trainer_with(*callbacks, **options)
    trainer.fit(module, loader() if train is None else train, ckpt_path=ckpt_path)
    return module, trainer


def every_step(folder):
    return ModelCheckpoint(folder, every_n_train_steps=1, save_top_k=-1, filename="{step}")
