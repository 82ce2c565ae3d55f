"""Tiny Hugging Face classifiers with random weights, and Trainers for them."""

import gc

import pytest
import torch
import transformers
from transformers import Trainer, TrainingArguments

SAMPLES = 14


@pytest.fixture(scope="module")
def cheap_garbage_collection():
    """Every Trainer.train calls gc.collect, which takes most of its time if all imported modules are searched."""
    gc.freeze()
    yield
    gc.unfreeze()


class Images(torch.utils.data.Dataset):
    """Random images whose class is their brighter half, with a column that no model takes."""

    def __init__(self, count=SAMPLES, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.arange(count) % 2
        self.images = torch.randn(count, 3, 16, 16, generator=generator)
        for image, label in zip(self.images, self.labels, strict=True):
            image[:, :, 8 * label : 8 * label + 8] += 1

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"pixel_values": self.images[index], "labels": int(self.labels[index]), "path": f"{index}.png"}


def vit():
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=16, patch_size=4,
        num_labels=2, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.1,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def resnet():
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic", num_labels=2
    )
    return transformers.ResNetForImageClassification(config)


def trainer_of(model, folder, callbacks=(), trainer=Trainer, train_dataset=None, **options):
    """A Trainer of two epochs of three steps, with two micro-batches of three images per step."""
    defaults = {
        "num_train_epochs": 2, "per_device_train_batch_size": 3, "gradient_accumulation_steps": 2,
        "learning_rate": 3e-3, "logging_steps": 1, "save_strategy": "no", "report_to": [], "use_cpu": True,
        "disable_tqdm": True, "dataloader_pin_memory": False, "seed": 3,
    }  # fmt: skip
    arguments = TrainingArguments(output_dir=str(folder), **(defaults | options))
    return trainer(
        model, arguments, train_dataset=train_dataset or Images(), eval_dataset=Images(5, seed=1),
        callbacks=list(callbacks),
    )  # fmt: skip
