"""Labelled images for planted shortcuts: drawn digits, MNIST-like idx files, CIFAR-10's files, or class folders."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from agop.errors import InputError
from agop.pictures import cifar10
from agop.pictures.folders import ClassFolders
from agop.pictures.idx import has_digits, read_digits
from agop.pictures.preprocessing import Preprocessing
from agop.scenarios.glyphs import drawn_digits
from agop.scenarios.noise import pink_noise

Bytes = NDArray[np.uint8]
_DRAWN = 8000


@lru_cache(maxsize=1)  # the models of a process share the images
def labelled_images(path: Path | None, side: int) -> tuple[Bytes, NDArray[np.int64]]:
    """Images (N,side,side,3) and labels (N,). Without a path, digits are drawn on coloured noise."""
    if path is None:
        return _drawn(side)
    if path.is_dir() and cifar10.batches(path):
        images, labels = cifar10.read_folder(path)
    elif has_digits(path):
        digits, labels = read_digits(path)
        images = np.repeat(digits[..., None], 3, axis=3)
    else:
        return _from_folders(path, side)
    return _resized(images, side), labels.astype(np.int64)


def _drawn(side: int) -> tuple[Bytes, NDArray[np.int64]]:
    random = np.random.default_rng(0)
    digits, labels = drawn_digits(_DRAWN, random)
    cover = _resized(np.repeat(digits[..., None], 3, axis=3), side) / 255.0
    noise = pink_noise(3 * _DRAWN, side, random).reshape(_DRAWN, 3, side, side).transpose(0, 2, 3, 1)
    colours = random.uniform(80, 255, (_DRAWN, 1, 1, 3))
    colours[np.arange(_DRAWN), 0, 0, random.integers(0, 3, _DRAWN)] = 255  # a digit like the noise can't be read
    return (cover * colours + (1 - cover) * (110 + 35 * noise)).clip(0, 255).astype(np.uint8), labels.astype(np.int64)


def _from_folders(path: Path, side: int) -> tuple[Bytes, NDArray[np.int64]]:
    folders = ClassFolders(path, Preprocessing((side, side)))
    batches = list(folders.batches(256))
    images = np.concatenate([np.asarray(images.mul(255).round().byte().permute(0, 2, 3, 1)) for images, _ in batches])
    return images, np.concatenate([np.asarray(labels) for _, labels in batches])


def _resized(images: Bytes, side: int) -> Bytes:
    """Images (N,side,side,3): padded if they are smaller, else scaled."""
    height, width = images.shape[1:3]
    if height != width:
        raise InputError(f"images have {height}×{width} pixels: use square images")
    if height <= side:
        before = (side - height) // 2
        margin = (before, side - height - before)
        return np.pad(images, ((0, 0), margin, margin, (0, 0)))
    return np.stack([np.asarray(Image.fromarray(image).resize((side, side))) for image in images])
