"""Fine-tune a Hugging Face classifier with the Trainer, and see what it looks at: one line more in `callbacks=`.

Runs offline in under a minute: a tiny ViT tells a T from an L in noise. Writes into ./demo/transformers.
"""

import torch
from torch import Tensor
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import agop
from agop.interop.transformers import AGOPTrainerCallback
from agop.scenarios import xai_tris


def rows(images: Tensor, labels: Tensor) -> list[dict[str, Tensor | int]]:
    """A dataset as the Trainer takes it: a dictionary a picture."""
    return [{"pixel_values": image, "labels": int(label)} for image, label in zip(images, labels, strict=True)]


def main() -> None:
    torch.manual_seed(0)
    train, _, test = xai_tris("linear")  # 8×8 pictures, with masks of where the shape stands
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
        callbacks=[callback],  # the line more
    )  # fmt: skip
    trainer.train()
    model = trainer.model.eval()

    print(callback.prior, "in demo/transformers/agop.safetensors")
    right = (model(test.images).logits.argmax(1) == test.labels).float().mean()
    print(f"{right:.2f} of the test pictures are told right; the shape covers {test.masks.float().mean():.2f} of them")
    for method in ("vanilla", "agop-weighted", "agop-global"):
        maps = agop.explain(model, test.images, method, prior=callback.prior)
        inside = (maps * test.masks).sum((1, 2)) / maps.sum((1, 2))
        print(f"{method:14} {inside.nanmean():.2f} of the map is on the shape")


if __name__ == "__main__":
    main()
