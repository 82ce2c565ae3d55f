"""Pictures on disk with masks of where the truth stands, for an evaluation of a user's own model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps
from torch import Tensor

from agop.errors import FileError, InputError, warn
from agop.pictures.folders import image_files
from agop.pictures.preprocessing import Preprocessing
from agop.system.progress import track


@dataclass(frozen=True)
class ImageMaskPairs:
    """Images (N,C,H,W), masks (N,H,W), labels (N,) or None, the classes' names, and the files' below their folder."""

    images: Tensor
    masks: Tensor
    labels: Tensor | None
    classes: tuple[str, ...]
    names: tuple[str, ...]


def load_image_mask_pairs(
    pictures: Path,
    masks: Path,
    preprocessing: Preprocessing,
    threshold: int | None = None,
    first: int | None = None,
    classes: Sequence[str] = (),
) -> ImageMaskPairs:
    """The pictures below a folder, each with the mask of the same name below the other; labels from class folders.

    Without a threshold a mask has two values, and 0 is outside. `classes` are the model's in their order, if known:
    without them the class folders are taken for all of them.
    """
    files = _pairs(pictures, masks)[:first]
    labels = _labels([picture for picture, _ in files], pictures, classes)
    found, kept = [], []
    for place, (picture, mask) in enumerate(track(files, "reading")):
        try:
            image = preprocessing.tensor(preprocessing.picture(picture))
        except FileError as error:
            warn(f"left out: {error}")
            continue
        found.append((image, _mask(mask, picture, preprocessing, threshold)))
        kept.append(place)
    if not found:
        raise InputError(f"none of {len(files)} files in {pictures} could be read as a picture")
    images, truths = (torch.stack(part) for part in zip(*found, strict=True))
    own, numbers = labels if labels is not None else ((), None)
    names = tuple(files[place][0].relative_to(pictures).as_posix() for place in kept)
    return ImageMaskPairs(images, truths, None if numbers is None else torch.tensor(numbers)[kept], own, names)


def _pairs(pictures: Path, masks: Path) -> list[tuple[Path, Path]]:
    """Each picture with its mask: the same place and name, whatever the suffix."""
    for folder in (pictures, masks):
        if not folder.is_dir():
            raise FileError(f"{folder} is not a folder: give one of pictures, and one of masks with the same names")
    by_name: dict[Path, Path] = {}
    for path in image_files(masks):
        name = path.relative_to(masks).with_suffix("")
        if name in by_name:
            raise InputError(f"{by_name[name]} and {path} are masks of one picture: leave one of them there")
        by_name[name] = path
    found = image_files(pictures)
    pairs = [(path, by_name[name]) for path in found if (name := path.relative_to(pictures).with_suffix("")) in by_name]
    if not pairs:
        raise InputError(f"no picture in {pictures} has a mask in {masks}: a mask has its picture's place and name")
    if len(pairs) < len(found):
        warn(f"{len(found) - len(pairs)} of {len(found)} pictures have no mask in {masks}: left out")
    return pairs


def _labels(files: Sequence[Path], folder: Path, known: Sequence[str]) -> tuple[tuple[str, ...], list[int]] | None:
    """The classes' names and each file's label, if every picture lies in a class folder."""
    if any(len(path.relative_to(folder).parts) < 2 for path in files):
        return None
    own = [path.relative_to(folder).parts[0] for path in files]
    classes = tuple(known) or tuple(sorted(child.name for child in folder.iterdir() if child.is_dir()))
    strange = sorted(set(own) - set(classes))
    if strange:
        warn(f"{folder / strange[0]} is no class of the prior ({', '.join(classes[:5])}): accuracy is not told")
        return None
    return classes, [classes.index(name) for name in own]


def _mask(path: Path, picture: Path, preprocessing: Preprocessing, threshold: int | None) -> Tensor:
    """A mask (H,W), scaled and cut as its picture was."""
    try:
        with Image.open(path) as file, Image.open(picture) as shown:
            drawn, upright = ImageOps.exif_transpose(file), _upright_size(shown)
    except (OSError, Image.DecompressionBombError, ValueError, SyntaxError) as error:
        raise FileError(f"{path} cannot be read as a mask: {error}") from error
    mask = _levels(drawn, path)
    if mask.shape != upright[::-1]:
        told = f"{path} is {mask.shape[1]}×{mask.shape[0]}, its picture {upright[0]}×{upright[1]}"
        raise InputError(f"{told}: give masks of their picture's size")
    values = np.unique(mask)
    if threshold is None and (len(values) > 2 or (len(values) == 2 and values[0] != 0)):
        raise InputError(
            f"{path} holds {len(values)} values from {values[0]} to {values[-1]}: give masks of two, 0 outside, or say "
            "--threshold, the value from which a pixel is inside"
        )
    inside = Image.fromarray(np.asarray(255 * (mask >= (threshold or 1)), dtype=np.uint8))
    return torch.from_numpy(np.asarray(preprocessing.cut(inside, Image.Resampling.NEAREST)) > 0)


def _upright_size(picture: Image.Image) -> tuple[int, int]:
    """Width and height of a picture as it is seen, from its header: it is decoded elsewhere."""
    lies = picture.getexif().get(ExifTags.Base.Orientation, 1) >= 5
    return (picture.height, picture.width) if lies else picture.size


def _levels(mask: Image.Image, path: Path) -> NDArray[Any]:
    """The values (H,W) of a mask as they stand in its file: indices of a palette, 16 bits, the brightest channel."""
    if "A" in mask.getbands() and len(set(mask.getchannel("A").getextrema())) > 1:
        raise InputError(
            f"{path} has transparent parts, and it is not told which are inside: save it in black and white"
        )
    values = np.asarray(mask.convert("RGB") if len(mask.getbands()) > 1 else mask)
    return (
        values.max(axis=-1)
        if values.ndim == 3
        else np.asarray(values, dtype=np.float64 if mask.mode == "F" else np.int64)
    )
