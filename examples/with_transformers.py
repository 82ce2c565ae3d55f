"""Train a Hugging Face classifier with the Trainer and see what it looks at: one additional callback.

Runs offline in under a minute: a tiny ViT distinguishes a T from an L in noise. Writes to ./demo/transformers.
"""

import torch
from torch import Tensor
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import agop
from agop.bench.scenarios import xai_tris
from agop.integrations.transformers import AGOPTrainerCallback


def rows(images: Tensor, labels: Tensor) -> list[dict[str, Tensor | int]]:
    """Dataset for the Trainer: one dictionary per image."""
    return [{"pixel_values": image, "labels": int(label)} for image, label in zip(images, labels, strict=True)]


def main() -> None:
    torch.manual_seed(0)
    train, _, test = xai_tris("linear")  # 8×8 images, with masks of the shape
    config = ViTConfig(
        image_size=8, patch_size=2, num_channels=1, num_labels=2,
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
    )  # fmt: skip
    callback = AGOPTrainerCallback()
    trainer = Trainer(
        ViTForImageClassification(config),
        TrainingArguments(
            output_dir="demo/transformers", num_train_epochs=3, per_device_train_batch_size=64, learning_rate=3e-3,
            save_strategy="no", logging_strategy="epoch", report_to=[], disable_tqdm=True, use_cpu=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=rows(train.images, train.labels),
        callbacks=[callback],  # the additional line
    )  # fmt: skip
    trainer.train()
    model = trainer.model.eval()

    print(callback.prior, "in demo/transformers/agop.safetensors")
    accuracy = (model(test.images).logits.argmax(1) == test.labels).float().mean()
    print(f"test accuracy {accuracy:.2f}; the shape covers {test.masks.float().mean():.2f} of an image")
    for method in ("vanilla", "agop-weighted", "agop-global"):
        maps = agop.explain(model, test.images, method, prior=callback.prior)
        inside = (maps * test.masks).sum((1, 2)) / maps.sum((1, 2))
        print(f"{method:14} {inside.nanmean():.2f} of the map is on the shape")


if __name__ == "__main__":
    main()
