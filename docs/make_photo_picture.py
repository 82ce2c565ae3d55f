"""Draw maps of three photographs by a network with ImageNet weights: `make_photo_picture.py FILE`.

The photographs come with scikit-image.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import skimage.data
import torch
from PIL import Image
from torch import Tensor

import agop
from agop.bench.networks import efficientnet_lite0
from agop.images.overlays import pixels, sheet

SHOWN = ("chelsea", "coffee", "rocket")
METHODS = ("integrated-gradients", "smoothgrad", "gradcam", "agop")
SIZE = 224
MEAN, SPREAD = 127 / 255, 128 / 255  # the network's preprocessing
BLACK, WHITE = [(0 - MEAN) / SPREAD] * 3, [(1 - MEAN) / SPREAD] * 3


def tensor(picture: Image.Image) -> Tensor:
    """Image (3,224,224) of a square RGB picture."""
    values = torch.from_numpy(np.array(picture.resize((SIZE, SIZE), Image.Resampling.BICUBIC)))
    return (values.permute(2, 0, 1) / 255 - MEAN) / SPREAD


def square(picture: Image.Image) -> Image.Image:
    """The central square."""
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    return picture.crop((left, top, left + side, top + side))


def main() -> None:
    """One row per photograph."""
    pictures = [Image.fromarray(getattr(skimage.data, name)()) for name in SHOWN]
    model = efficientnet_lite0(1000).eval()
    images = torch.stack([tensor(square(picture)) for picture in pictures])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", agop.AGOPWarning)
        maps = {name: agop.explain(model, images, name) for name in METHODS}
    sheets = [
        sheet(picture, {name: values[index].numpy() for name, values in maps.items()})
        for index, picture in enumerate(pixels(images, BLACK, WHITE))
    ]
    page = Image.fromarray(np.concatenate([np.asarray(each) for each in sheets]))  # one below the other
    page.quantize(256).save(Path(sys.argv[1]), optimize=True)


if __name__ == "__main__":
    main()
