"""The official CLEVR-XAI release: its files, questions and masks as samples of the task."""

from __future__ import annotations

import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import interpolate

from agop.bench.scenarios.clevr_scene import MATERIALS
from agop.errors import FileError, InputError
from agop.images.preprocessing import FORMATS
from agop.io import read_bytes
from agop.processes import track
from agop.registry import unknown_name_error

Mask = NDArray[np.bool_]
ARCHIVES = ("CLEVR-XAI_v1.0.zip", "CLEVR-XAI_v1.0_images_masks.zip")
PAGE = "https://github.com/ahmedmagdiosman/clevr-xai/releases"
_NEXT_STEP = f"download {' and '.join(ARCHIVES)} from {PAGE} into one folder, and pass that folder"
_AGAIN = f"download it again from {PAGE}"
_QUESTIONS = ("simple", "complex")
# Kinds of masks: all objects, the queried object, all objects of its material.
KINDS = ("all_objects", "single_object", "dominant")
# Side of the release's ground truths.
RELEASED = 128
_SHORTEST = 8
_BACKGROUND = (64, 64, 64)
# In linear light: rounding to eight bits moves a colour by at most 0.008; random colours are about 0.5 apart.
_MAX_DISTANCE, _MAX_UNKNOWN_SHARE = 0.05, 0.2


@dataclass(frozen=True)
class Sample:
    """The queried object, its material as label (0 metal, 1 rubber), and all objects of that material."""

    queried: int
    label: int
    dominant: tuple[int, ...]


@dataclass(frozen=True)
class OfficialSample(Sample):
    """A sample of the release, with the number of its question, the name of its image, and its scene."""

    question_index: int
    image_filename: str
    scene: dict[str, Any] = field(repr=False, compare=False)


class UnusableSample(InputError):
    """A sample that can't be used. The message is the reason, without names, so that reasons can be counted."""


@dataclass
class Release:
    """The samples of a release. The image and masks of each have been read once.

    Each material question is either in `samples` or counted in `dropped`, by reason. `totals` counts scenes, questions
    and material questions. `without_dominant` counts samples without a usable mask image.
    """

    files: Files
    questions: str
    samples: list[OfficialSample] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    without_dominant: int = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        """The available kinds of masks; "dominant" needs mask images."""
        return KINDS if self.without_dominant < len(self.samples) else KINDS[:2]

    def image(self, sample: OfficialSample, size: int) -> NDArray[np.uint8]:
        """The sample's image (size,size,3), squeezed to a square with antialiasing."""
        return np.array(self._image(sample).resize((size, size), Image.Resampling.BILINEAR))

    def masks(self, sample: OfficialSample) -> dict[str, Mask]:
        """The masks "all_objects", "single_object" and, if there's a mask image, "dominant", each (H,W).

        They are the release's ground truths. A missing one is made from the mask image, at 128×128 as in the release.
        """
        size, reason = self._image(sample).size, "it has neither a ground truth nor a mask image"
        try:
            indices = self._object_indices(sample, size)
        except UnusableSample as error:  # the ground truths may still be there
            indices, reason = None, str(error)
        masks = {}
        for kind in ("all_objects", "single_object"):
            # Complex questions have no ground truths for the single object: the mask image has it.
            name = f"ground_truth_{self.questions}_questions_{kind}/{sample.question_index}.npy"
            mask = self._ground_truth(name)
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

    def summary(self) -> str:
        """A few lines: what was found, kept and dropped, and why."""
        kept, metal = len(self.samples), sum(sample.label == 0 for sample in self.samples)
        images = len({sample.image_filename for sample in self.samples})
        lines = [
            f"found: {', '.join(f'{count:,} {what}' for what, count in self.totals.items())}",
            f"kept: {kept:,} samples on {images:,} images, {metal:,} metal and {kept - metal:,} rubber",
            *(f"dropped: {count:,}, {reason}" for reason, count in self.dropped.most_common()),
        ]
        if self.without_dominant:
            use = "skipped by the benchmark" if "dominant" in self.kinds else "scored with the other kinds of masks"
            lines.append(f"incomplete: {self.without_dominant:,} without a usable mask image, {use}")
        return "\n".join(lines)

    def _image(self, sample: OfficialSample) -> Image.Image:
        image = self._decoded("images", sample.image_filename, "image")
        if image is None:
            raise UnusableSample("its image is missing")
        return image

    def _decoded(self, folder: str, filename: str, what: str) -> Image.Image | None:
        """An image in RGB, or None if there's no such file."""
        name = re.split(r"[\\/]", filename)[-1]  # a name in a JSON file can't point outside the release
        content = self._content(f"{folder}/{name}", what)
        if content is None:
            return None
        try:
            with Image.open(io.BytesIO(content), formats=FORMATS) as file:
                return file.convert("RGB")
        except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
            raise UnusableSample(f"its {what} is corrupt") from error

    def _content(self, name: str, what: str) -> bytes | None:
        try:
            return self.files.read(name)
        except FileError as error:
            raise UnusableSample(f"its {what} is corrupt") from error

    def _object_indices(self, sample: OfficialSample, size: tuple[int, int]) -> NDArray[np.int64] | None:
        """Index (H,W) of the object at each pixel, or None without a mask image."""
        name = str(sample.scene.get("mask_filename") or sample.image_filename)
        mask_image = self._decoded("masks", name, "mask image")
        if mask_image is None:
            return None
        if mask_image.size != size:
            raise UnusableSample("its mask image and its image differ in size")
        try:
            records = sample.scene["objects"]
            colours = np.array([each["mask_color"][:3] for each in records], dtype=np.float64).reshape(-1, 3)
            return object_indices(np.asarray(mask_image), colours)
        except (KeyError, TypeError, ValueError) as error:
            raise UnusableSample("its mask image's colours don't match the scene's objects") from error

    def _ground_truth(self, name: str) -> Mask | None:
        """Mask (H,W) from an .npy file, or None if there's no such file."""
        content = self._content(name, "ground truth")
        if content is None:
            return None
        try:
            array = np.load(io.BytesIO(content), allow_pickle=False)
        except (ValueError, EOFError, OSError, MemoryError) as error:
            raise UnusableSample("its ground truth is corrupt, or a pickle, which could run code") from error
        flat = isinstance(array, np.ndarray) and array.ndim == 2 and min(array.shape) >= _SHORTEST
        if not flat or array.dtype.kind not in "biuf" or not set(np.unique(array).tolist()) <= {0, 1}:
            raise UnusableSample("its ground truth is not a two-dimensional mask of true and false")
        return np.asarray(array != 0)


def read_release(folder: Path, report: Callable[[str], None] = lambda line: None, questions: str = "simple") -> Release:
    """Read the paper's samples from a folder with the official files, unpacked or not, or from one of the two archives.

    By default from the simple questions: they ask for a material about once per scene, and about half of these
    questions pass the 60 % rule, which gives the paper's 4,952 samples from 10,000 scenes.
    """
    if questions not in _QUESTIONS:
        raise unknown_name_error("kind of question", questions, _QUESTIONS)
    release = Release(Files(Path(folder)), questions)
    report("reading the scenes and questions")
    scenes = release.files.records("CLEVR-XAI_scenes.json", "scenes")
    asked = release.files.records(f"CLEVR-XAI_{questions}_questions.json", "questions")
    # Without folder and suffix: what a scene and its questions have in common.
    by_name = {PurePath(str(scene.get("image_filename"))).stem: scene for scene in scenes}
    material = []
    for question in asked:
        program = question.get("program")
        if isinstance(program, list) and program and _kind(program[-1]) == "query_material":
            material.append(question)
    release.totals = {"scenes": len(scenes), "questions": len(asked), "material questions": len(material)}
    candidates = []
    for question in material:
        scene = by_name.get(PurePath(str(question.get("image_filename") or question.get("image"))).stem)
        try:
            candidates.append(official_sample(question, scene))
        except UnusableSample as error:
            release.dropped[str(error)] += 1
    report(f"checking the images and masks of {len(candidates):,} samples")
    for sample in track(candidates, "checking images and masks"):
        try:  # unreadable files must be reported before training starts
            release.without_dominant += "dominant" not in release.masks(sample)
            release.samples.append(sample)
        except UnusableSample as error:
            release.dropped[str(error)] += 1
    if not release.samples:
        reasons = [f"{count:,} dropped: {reason}" for reason, count in release.dropped.most_common()]
        counts = "; ".join([f"Found {release.totals['material questions']:,} material questions", *reasons])
        raise FileError(f"{folder} has no usable sample: {_NEXT_STEP}. {counts}")
    return release


def official_sample(question: dict[str, Any], scene: dict[str, Any] | None) -> OfficialSample:
    """The sample of a material question. Raises UnusableSample."""
    if scene is None:
        raise UnusableSample("its scene is missing")
    try:
        # The object that a `unique` node passes to the last node.
        program = question["program"]
        node = program[program[-1]["inputs"][0]]
        queried = node["_output"]
        if isinstance(queried, list) and len(queried) == 1:
            queried = queried[0]
        if not str(_kind(node)).endswith("unique") or type(queried) is not int or queried < 0:
            raise ValueError(f"{_kind(node)} passes {queried!r}, not one object, to query_material")
        materials = [record["material"] for record in scene["objects"]]
        if materials[queried] != question["answer"]:
            raise ValueError(f"object {queried} is {materials[queried]}, the answer is {question['answer']}")
        sample = sample_about(queried, materials)
        index, filename = int(question["question_index"]), str(scene["image_filename"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UnusableSample("the question or its scene is not in the official format") from error
    if sample is None:
        raise UnusableSample("fewer than 60 % of its scene's objects are of the queried material")
    return OfficialSample(**vars(sample), question_index=index, image_filename=filename, scene=scene)


def sample_about(queried: int, materials: Sequence[str]) -> Sample | None:
    """The sample of a question about one object, or None if fewer than 60 % of the objects share its material."""
    label = MATERIALS.index(materials[queried])
    dominant = tuple(index for index, material in enumerate(materials) if material == materials[queried])
    return Sample(queried, label, dominant) if 5 * len(dominant) >= 3 * len(materials) else None


def _kind(node: dict[str, Any]) -> Any:
    """The type of a program's node. Older releases of CLEVR call it `function`."""
    return node.get("type", node.get("function"))


class Files:
    """Access to the release's files by their official names, such as images/CLEVR_unique_000000.png."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise FileError(f"{path} doesn't exist: {_NEXT_STEP}")
        if path.is_file() and path.suffix.lower() != ".zip":
            raise FileError(f"{path} is neither a folder nor a zip archive: {_NEXT_STEP}")
        self.path = path
        # An archive may have been unpacked into a subfolder.
        self._folders = [path, *sorted(child for child in path.iterdir() if child.is_dir())] if path.is_dir() else []
        archives = sorted((path if path.is_dir() else path.parent).glob("CLEVR-XAI*.zip"))
        archives = archives if path.is_dir() else [path, *archives]
        # Each archive, and its members by their official names, without the folder they were packed in.
        self._archives: list[tuple[ZipFile, dict[str, str]]] = []
        for file in dict.fromkeys(archives):
            try:
                archive = ZipFile(file)
            except (BadZipFile, OSError) as error:
                raise FileError(f"{file} is not a valid zip archive ({error}): {_AGAIN}") from error
            members: dict[str, str] = {}
            for name in archive.namelist():
                parts = name.split("/")
                members.setdefault("/".join(parts[-1:] if parts[-1].startswith("CLEVR-XAI_") else parts[-2:]), name)
            self._archives.append((archive, members))

    def read(self, name: str) -> bytes | None:
        """A file's content, or None if the release has no such file. Raises FileError if it's corrupt."""
        for folder in self._folders:
            if (folder / name).is_file():
                return read_bytes(folder / name)
        for archive, members in self._archives:
            if name in members:
                try:
                    return archive.read(members[name])
                # RuntimeError: an encrypted member, or (NotImplementedError) an unknown compression.
                except (BadZipFile, OSError, EOFError, RuntimeError, zlib.error) as error:
                    raise FileError(f"could not read {name} from {archive.filename}: {error}") from error
        return None

    def records(self, name: str, key: str) -> list[dict[str, Any]]:
        """The scenes or questions of an official JSON file."""
        content = self.read(name)
        if content is None:
            raise FileError(f"{self.path} has no {name}: {_NEXT_STEP}")
        try:
            parsed = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise FileError(f"{name} in {self.path} is not valid JSON ({error}): {_AGAIN}") from error
        records = parsed.get(key) if isinstance(parsed, dict) else parsed
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise FileError(f"{name} in {self.path} has no list of {key}: {_AGAIN}")
        return records


def resized(mask: Mask, size: int) -> Mask:
    """Masks (…,size,size) from masks (…,H,W): true where a bilinear resize without antialiasing is above 0.

    Half-pixel centres, as in OpenCV's INTER_LINEAR. At half the size, a pixel is true if any of its four source pixels
    is: masks grow a little, and none is lost. At smaller sizes, rows and columns are skipped.
    """
    stacked = torch.from_numpy(mask).double().reshape(-1, 1, *mask.shape[-2:])
    above = interpolate(stacked, (size, size), mode="bilinear", align_corners=False) > 0
    return np.asarray(above.reshape(*mask.shape[:-2], size, size))


def as_released(mask: Mask) -> Mask:
    """The ground truth (128,128) that the release would have for a mask (H,W) at its image's size.

    The benchmark's own code uses Pillow's bilinear resize, which antialiases: a pixel is true if the object is
    anywhere under its triangle filter.
    """
    image = Image.fromarray(mask.astype(np.float32))
    above: Mask = np.asarray(image.resize((RELEASED, RELEASED), Image.Resampling.BILINEAR)) > 0
    return above


def object_indices(mask_image: NDArray[np.uint8], colours: NDArray[np.float64]) -> NDArray[np.int64]:
    """Index (H,W) of the object at each pixel of a mask image (H,W,3), −1 for background.

    `colours` (objects,3) are the scene's mask colours in linear light; the mask image is in sRGB.
    """
    packed = mask_image.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32)
    values, counts = np.unique(packed, return_counts=True)
    unpacked = np.stack([values >> 16, values >> 8 & 255, values & 255], axis=1)
    expected = np.concatenate([_linear(np.array([_BACKGROUND])), colours])
    distances = np.linalg.norm(_linear(unpacked)[:, None] - expected, axis=2)
    nearest = distances.argmin(axis=1) - 1
    unknown = counts[distances.min(axis=1) > _MAX_DISTANCE].sum()
    if unknown > _MAX_UNKNOWN_SHARE * counts[nearest >= 0].sum():
        raise ValueError("the mask image has colours that no object of its scene has")
    return np.asarray(nearest[np.searchsorted(values, packed)])


def _linear(srgb: NDArray[np.generic]) -> NDArray[np.float64]:
    """Linear light in [0,1] from sRGB values in [0,255]."""
    share = srgb.astype(np.float64) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
