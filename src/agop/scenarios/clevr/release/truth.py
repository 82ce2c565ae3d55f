"""A sample's picture and ground truths, each read from its file or refused with a reason."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from agop.errors import FileError, InputError
from agop.scenarios.clevr.release.archive import Damaged, Files
from agop.scenarios.clevr.release.masks import Mask, as_released, objects_of
from agop.scenarios.clevr.release.questions import OfficialSample

_SHORTEST = 8


class Unusable(InputError):
    """A sample that cannot be used; the message is the reason, the same for all its kind."""


def picture(files: Files, filename: str) -> Image.Image:
    """The picture, decoded, in RGB."""
    decoded = _decoded(files, f"images/{_base(filename)}", "picture")
    if decoded is None:
        raise Unusable("its picture is missing")
    return decoded


def _decoded(files: Files, name: str, what: str) -> Image.Image | None:
    content = _content(files, name, what)
    if content is None:
        return None
    try:
        with Image.open(io.BytesIO(content)) as file:
            return file.convert("RGB")
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise Unusable(f"its {what} is broken") from error


def _content(files: Files, name: str, what: str) -> bytes | None:
    try:
        return files.read(name)
    except Damaged as error:
        raise Unusable(f"its {what} is broken") from error


def masks(files: Files, sample: OfficialSample, scene: dict[str, Any], questions: str) -> dict[str, Mask]:
    """The masks "all_objects", "single_object" and, if there is a mask picture, "dominant".

    Where the release has a ground truth, that; else the mask picture's, at 128×128 as the release would have it.
    """
    size, why = picture(files, sample.image_filename).size, "it has neither a ground truth nor a mask picture"
    try:
        objects = _objects(files, sample, scene, size)
    except Unusable as fault:  # the ground truths may still be there
        objects, why = None, str(fault)
    found = {}
    for kind in ("all_objects", "single_object"):
        # Complex questions have no such folder for the single object: then the mask picture has it.
        truth = ground_truth(files, f"ground_truth_{questions}_questions_{kind}/{sample.question_index}.npy")
        if truth is None:
            if objects is None:
                raise Unusable(why)
            truth = as_released(objects >= 0 if kind == "all_objects" else objects == sample.queried)
        found[kind] = truth
    if objects is not None:
        found["dominant"] = as_released(np.isin(objects, sample.dominant))
    if not all(mask.any() for mask in found.values()):
        raise Unusable("one of its masks is empty")
    return found


def _objects(
    files: Files, sample: OfficialSample, scene: dict[str, Any], size: tuple[int, int]
) -> NDArray[np.int64] | None:
    """Which object (H,W) each pixel shows, or None without a mask picture."""
    name = _base(str(scene.get("mask_filename") or sample.image_filename))
    shown = _decoded(files, f"masks/{name}", "mask picture")
    if shown is None:
        return None
    if shown.size != size:
        raise Unusable("its mask picture has another size than its picture")
    try:
        colours = np.array([one["mask_color"][:3] for one in scene["objects"]], dtype=np.float64).reshape(-1, 3)
        return objects_of(np.asarray(shown), colours)
    except (KeyError, TypeError, ValueError) as error:
        raise Unusable("its mask picture's colours are not those of the scene's objects") from error


def ground_truth(files: Files, name: str) -> Mask | None:
    """The mask (H,W) of an .npy file, or None if there is no such file."""
    content = _content(files, name, "ground truth")
    if content is None:
        return None
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        # A pickle can run code; one in a data set is either an attack or somebody else's file.
        if content.startswith(b"\x80") or "Object arrays" in str(error):
            raise FileError(
                f"{name} in {files.path} is a pickle, which could run code and was not opened: the official ground "
                "truths are plain arrays; see where this file comes from, then delete it or get it again"
            ) from error
        raise Unusable("its ground truth is broken") from error
    if not _is_mask(array):
        raise Unusable("its ground truth is not a two-dimensional mask of true and false")
    return np.asarray(array != 0)


def _is_mask(array: Any) -> bool:
    """Whether it is an array (H,W) of true and false, or of 1 and 0; several arrays in one file are not."""
    if not isinstance(array, np.ndarray) or array.ndim != 2 or min(array.shape) < _SHORTEST:
        return False
    return array.dtype == bool or (array.dtype.kind in "iuf" and set(np.unique(array).tolist()) <= {0, 1})


def _base(filename: str) -> str:
    """The name without folders: one from a JSON file must not lead out of its own."""
    return re.split(r"[\\/]", filename)[-1]
