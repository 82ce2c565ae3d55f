"""A timm model and image files: size, mean, std and GradCAM's layer are read from the model.

Runs offline in under a minute: timm's smallest ViT classifies the position of a bright square. Writes to ./demo/timm.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import agop
from agop.images.files import ClassFolders, image_files
from agop.images.overlays import sheet

try:
    import timm
except Exception as error:  # a torchvision for another torch raises RuntimeError
    sys.exit(f"this example needs timm, which can't be imported: {type(error).__name__}: {error}")
FOLDER = Path("demo/timm")


def draw_images(count: int, random: np.random.Generator) -> None:
    """Write noise images with a bright square, in one folder per class."""
    for index in range(count):
        pixels = random.integers(0, 160, (120, 180, 3), np.uint8)
        name, corner = [("above", np.s_[12:44, 42:74]), ("below", np.s_[76:108, 106:138])][index % 2]
        pixels[corner] += 90
        (FOLDER / "images" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(FOLDER / "images" / name / f"{index}.png")


def main() -> None:
    torch.manual_seed(0)
    draw_images(80, np.random.default_rng(0))
    model = timm.create_model("test_vit", pretrained=False, num_classes=2)
    described = agop.integrations.from_timm(model)
    print(described.preprocessing)
    print("GradCAM layer:", described.layer)
    data = ClassFolders(FOLDER / "images", described.preprocessing)
    images, labels = (torch.cat(part) for part in zip(*data.batches(40), strict=True))
    optimizer, hook = torch.optim.Adam(model.parameters(), lr=1e-3), agop.AGOPTrainingHook(model)
    for batch in torch.randperm(len(images)).repeat(6).split(10):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
        hook.step(images[batch], labels[batch])
    prior = hook.finalize()
    print(prior)
    path = image_files(FOLDER / "images")[0]
    methods = ("vanilla", "gradcam", "agop-weighted", "agop-global")
    maps = {name: agop.explain(model, described.images([path]), name, prior)[0].numpy() for name in methods}
    sheet(np.asarray(described.preprocessing.picture(path)), maps).save(FOLDER / "sheet.png")
    print(f"wrote {FOLDER}/sheet.png")


if __name__ == "__main__":
    main()
