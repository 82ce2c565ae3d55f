"""Images on disk, with or without masks of the relevant region, to evaluate a user's own model."""

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
from agop.pictures.class_names import folder_classes
from agop.pictures.formats import open_image
from agop.pictures.image_files import class_folders, image_files
from agop.pictures.preprocessing import Preprocessing
from agop.system.progress import track


@dataclass(frozen=True)
class ImageMaskPairs:
    """Images (N,C,H,W), class names, and file names relative to the folder; masks (N,H,W) and labels (N,) or None."""

    images: Tensor
    masks: Tensor | None
    labels: Tensor | None
    classes: tuple[str, ...]
    names: tuple[str, ...]


def load_image_mask_pairs(
    pictures: Path,
    masks: Path | None,
    preprocessing: Preprocessing,
    threshold: int | None = None,
    first: int | None = None,
    classes: Sequence[str] = (),
    num_classes: int | None = None,
) -> ImageMaskPairs:
    """Images below a folder, each with the mask of the same name below the other. Labels come from class folders.

    Without a folder of masks, only images are read. Without a threshold a mask has two values, and 0 is outside.
    `classes` are the names of the model's classes in order. Without them, there must be a folder for each of
    `num_classes` classes.
    """
    files = _pairs(pictures, masks)[:first]
    class_names, labels = _labels([picture for picture, _ in files], pictures, classes, num_classes)
    images, inside, rows = [], [], []
    for row, (picture, mask) in enumerate(track(files, "reading")):
        try:
            images.append(preprocessing.tensor(preprocessing.picture(picture)))
        except FileError as error:
            warn(f"skipped: {error}")
            continue
        if mask is not None:
            inside.append(_mask(mask, picture, preprocessing, threshold))
        rows.append(row)
    if not images:
        raise InputError(f"none of the {len(files)} files in {pictures} could be read as an image")
    names = tuple(files[row][0].relative_to(pictures).as_posix() for row in rows)
    readable = None if labels is None else torch.tensor(labels)[rows]
    return ImageMaskPairs(torch.stack(images), torch.stack(inside) if inside else None, readable, class_names, names)


def _pairs(pictures: Path, masks: Path | None) -> Sequence[tuple[Path, Path | None]]:
    """Each image with its mask, which has the same relative path, up to the suffix."""
    for folder in (pictures, masks):
        if folder is not None and not folder.is_dir():
            raise FileError(f"{folder} is not a folder: pass one of images, and one of masks with the same names")
    files = image_files(pictures)
    if masks is None:
        return [(path, None) for path in files]
    by_name: dict[Path, Path] = {}
    for path in image_files(masks):
        name = path.relative_to(masks).with_suffix("")
        if name in by_name:
            raise InputError(f"{by_name[name]} and {path} are masks of the same image: remove one of them")
        by_name[name] = path
    pairs = [(path, by_name[name]) for path in files if (name := path.relative_to(pictures).with_suffix("")) in by_name]
    if not pairs:
        raise InputError(f"no image in {pictures} has a mask in {masks}: a mask needs the relative path of its image")
    if len(pairs) < len(files):
        warn(f"{len(files) - len(pairs)} of {len(files)} images have no mask in {masks}: skipped")
    return pairs


def _labels(
    files: Sequence[Path], folder: Path, classes: Sequence[str], num_classes: int | None
) -> tuple[tuple[str, ...], list[int] | None]:
    """Class names and a label per file; no names and None unless every image is in a folder of a known class."""
    if any(len(path.relative_to(folder).parts) < 2 for path in files):
        return (), None
    folders = [path.relative_to(folder).parts[0] for path in files]
    all_folders = class_folders(folder)
    index = folder_classes(all_folders, classes, len(all_folders) if num_classes is None else num_classes)
    unknown = sorted(set(folders) - index.keys())
    if unknown:
        listed = ", ".join(classes[:5])
        warn(f"{folder / unknown[0]} isn't one of the model's classes ({listed}): accuracy won't be reported")
        return (), None
    return tuple(classes or all_folders), [index[name] for name in folders]


def _mask(path: Path, picture: Path, preprocessing: Preprocessing, threshold: int | None) -> Tensor:
    """A mask (H,W), scaled and cropped like its image."""
    with open_image(picture) as image:
        width, height = _upright_size(image)
    with open_image(path, "a mask") as file:
        upright = ImageOps.exif_transpose(file)
    mask = _levels(upright, path)
    if mask.shape != (height, width):
        raise InputError(
            f"{path} is {mask.shape[0]}×{mask.shape[1]}, its image {height}×{width} (height×width): "
            "masks need the size of their image"
        )
    values = np.unique(mask)
    if threshold is None and (len(values) > 2 or (len(values) == 2 and values[0] != 0)):
        raise InputError(
            f"{path} has {len(values)} values from {values[0]} to {values[-1]}: use masks with two values, 0 outside, "
            "or pass --threshold, the smallest value inside"
        )
    inside = Image.fromarray(np.asarray(255 * (mask >= (threshold or 1)), dtype=np.uint8))
    return torch.from_numpy(np.asarray(preprocessing.cut(inside, Image.Resampling.NEAREST)) > 0)


def _upright_size(picture: Image.Image) -> tuple[int, int]:
    """Width and height of an image after EXIF rotation, from its header: decoding it again would be slow."""
    rotated = picture.getexif().get(ExifTags.Base.Orientation, 1) >= 5
    return (picture.height, picture.width) if rotated else picture.size


def _levels(mask: Image.Image, path: Path) -> NDArray[Any]:
    """Values (H,W) of a mask as stored: palette indices, 16 bits, or the largest channel."""
    if "A" in mask.getbands() and len(set(mask.getchannel("A").getextrema())) > 1:
        raise InputError(f"{path} has transparency, so inside and outside are ambiguous: save it in black and white")
    if len(mask.getbands()) > 1:
        return np.asarray(np.asarray(mask.convert("RGB")).max(axis=-1))
    return np.asarray(mask, dtype=np.float64 if mask.mode == "F" else np.int64)
