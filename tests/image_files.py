"""Image files for a test."""

import numpy as np
from PIL import Image


def save(path, pixels):
    """Save pixels (H,W) or (H,W,3) as an image of 8 bits. Creates the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels).clip(0, 255).astype(np.uint8)).save(path)


def save_random(folder, *names, shape=(8, 8)):
    """Save random images with these names."""
    draw = np.random.default_rng(0)
    for name in names:
        save(folder / name, draw.integers(0, 255, shape))
