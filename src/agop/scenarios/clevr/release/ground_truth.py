"""Image and masks of one official sample; an unusable sample raises with its reason."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from agop.errors import FileError, InputError
from agop.pictures.formats import FORMATS
from agop.scenarios.clevr.release.files import CorruptFile, Files
from agop.scenarios.clevr.release.masks import Mask, as_released, object_indices
from agop.scenarios.clevr.release.questions import OfficialSample

_SHORTEST = 8


class UnusableSample(InputError):
    """A sample that can't be used. The message is the reason, without names, so that reasons can be counted."""


def image_of(files: Files, filename: str) -> Image.Image:
    """The sample's image, decoded, in RGB."""
    image = _decoded(files, f"images/{_base(filename)}", "image")
    if image is None:
        raise UnusableSample("its image is missing")
    return image


def _decoded(files: Files, name: str, what: str) -> Image.Image | None:
    content = _content(files, name, what)
    if content is None:
        return None
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as file:
            return file.convert("RGB")
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise UnusableSample(f"its {what} is corrupt") from error


def _content(files: Files, name: str, what: str) -> bytes | None:
    try:
        return files.read(name)
    except CorruptFile as error:
        raise UnusableSample(f"its {what} is corrupt") from error


def masks_of(files: Files, sample: OfficialSample, scene: dict[str, Any], questions: str) -> dict[str, Mask]:
    """The masks "all_objects", "single_object" and, if there's a mask image, "dominant".

    They are the release's ground truths. A missing one is made from the mask image, at 128×128 as in the release.
    """
    size, reason = image_of(files, sample.image_filename).size, "it has neither a ground truth nor a mask image"
    try:
        indices = _object_indices(files, sample, scene, size)
    except UnusableSample as error:  # the ground truths may still be there
        indices, reason = None, str(error)
    masks = {}
    for kind in ("all_objects", "single_object"):
        # Complex questions have no ground truths for the single object: the mask image has it.
        mask = ground_truth(files, f"ground_truth_{questions}_questions_{kind}/{sample.question_index}.npy")
        if mask is None:
            if indices is None:
                raise UnusableSample(reason)
            mask = as_released(indices >= 0 if kind == "all_objects" else indices == sample.queried)
        masks[kind] = mask
    if indices is not None:
        masks["dominant"] = as_released(np.isin(indices, sample.dominant))
    if not all(mask.any() for mask in masks.values()):
        raise UnusableSample("one of its masks is empty")
    return masks


def _object_indices(
    files: Files, sample: OfficialSample, scene: dict[str, Any], size: tuple[int, int]
) -> NDArray[np.int64] | None:
    """Index (H,W) of the object at each pixel, or None without a mask image."""
    name = _base(str(scene.get("mask_filename") or sample.image_filename))
    mask_image = _decoded(files, f"masks/{name}", "mask image")
    if mask_image is None:
        return None
    if mask_image.size != size:
        raise UnusableSample("its mask image and its image differ in size")
    try:
        colours = np.array([each["mask_color"][:3] for each in scene["objects"]], dtype=np.float64).reshape(-1, 3)
        return object_indices(np.asarray(mask_image), colours)
    except (KeyError, TypeError, ValueError) as error:
        raise UnusableSample("its mask image's colours don't match the scene's objects") from error


def ground_truth(files: Files, name: str) -> Mask | None:
    """Mask (H,W) from an .npy file, or None if there's no such file."""
    content = _content(files, name, "ground truth")
    if content is None:
        return None
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        # Loading a pickle can run code. The official release has none.
        if content.startswith(b"\x80") or "Object arrays" in str(error):
            raise FileError(
                f"{name} in {files.path} is a pickle, which could run code, and was not loaded: the official ground "
                "truths are plain arrays. Check where this file comes from, then delete it or download it again"
            ) from error
        raise UnusableSample("its ground truth is corrupt") from error
    if not _is_mask(array):
        raise UnusableSample("its ground truth is not a two-dimensional mask of true and false")
    return np.asarray(array != 0)


def _is_mask(array: Any) -> bool:
    """Whether it's one array (H,W) of true and false, or of 1 and 0."""
    if not isinstance(array, np.ndarray) or array.ndim != 2 or min(array.shape) < _SHORTEST:
        return False
    return array.dtype == bool or (array.dtype.kind in "iuf" and set(np.unique(array).tolist()) <= {0, 1})


def _base(filename: str) -> str:
    """The name without folders, so that a name in a JSON file can't point outside the release."""
    return re.split(r"[\\/]", filename)[-1]
