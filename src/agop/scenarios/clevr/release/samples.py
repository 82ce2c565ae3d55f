"""The official release as samples of the paper's task, with counts of what was dropped and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from agop.errors import FileError, InputError
from agop.registry import unknown_name_error
from agop.scenarios.clevr.release.files import NEXT_STEP, Files
from agop.scenarios.clevr.release.ground_truth import UnusableSample, image_of, masks_of
from agop.scenarios.clevr.release.masks import Mask
from agop.scenarios.clevr.release.questions import OfficialSample, asks_for_material, official_sample
from agop.scenarios.clevr.task import KINDS
from agop.system.progress import track

QUESTIONS = ("simple", "complex")
_RARE = "fewer than 60 % of its scene's objects are of the queried material"


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
    _scenes: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)

    @property
    def kept(self) -> int:
        """The number of samples."""
        return len(self.samples)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The available kinds of masks; "dominant" needs mask images."""
        return KINDS if self.without_dominant < self.kept else KINDS[:2]

    def image(self, sample: OfficialSample, size: int) -> NDArray[np.uint8]:
        """The sample's image (size,size,3), squeezed to a square with antialiasing."""
        image = image_of(self.files, sample.image_filename)
        return np.array(image.resize((size, size), Image.Resampling.BILINEAR))

    def masks(self, sample: OfficialSample) -> dict[str, Mask]:
        """The masks "all_objects", "single_object" and, if there's a mask image, "dominant", each (H,W).

        Most are 128×128.
        """
        return masks_of(self.files, sample, self._scenes[_stem(sample.image_filename)], self.questions)

    def summary(self) -> str:
        """A few lines: what was found, kept and dropped, and why."""
        metal = sum(sample.label == 0 for sample in self.samples)
        images = len({sample.image_filename for sample in self.samples})
        lines = [
            f"found: {', '.join(f'{count:,} {what}' for what, count in self.totals.items())}",
            f"kept: {self.kept:,} samples on {images:,} images, {metal:,} metal and {self.kept - metal:,} rubber",
            *(f"dropped: {count:,}, {reason}" for reason, count in self.dropped.most_common()),
        ]
        if self.without_dominant:
            use = "skipped by the benchmark" if "dominant" in self.kinds else "scored with the other kinds of masks"
            lines.append(f"incomplete: {self.without_dominant:,} without a usable mask image, {use}")
        return "\n".join(lines)


def read_release(folder: Path, report: Callable[[str], None] = lambda line: None, questions: str = "simple") -> Release:
    """Read the paper's samples from a folder with the official files, unpacked or not, or from one of the two archives.

    By default from the simple questions: they ask for a material about once per scene, and about half of these
    questions pass the 60 % rule, which gives the paper's 4,952 samples from 10,000 scenes.
    """
    if questions not in QUESTIONS:
        raise unknown_name_error("kind of question", questions, QUESTIONS)
    release = Release(Files(Path(folder)), questions)
    report("reading the scenes and questions")
    candidates = list(_candidates(release))
    report(f"checking the images and masks of {len(candidates):,} samples")
    for sample in track(candidates, "checking images and masks"):
        _keep_or_drop(release, sample)
    if not release.samples:
        reasons = [f"{count:,} dropped: {reason}" for reason, count in release.dropped.most_common()]
        counts = "; ".join([f"Found {release.totals['material questions']:,} material questions", *reasons])
        raise FileError(f"{folder} has no usable sample: {NEXT_STEP}. {counts}")
    return release


def _candidates(release: Release) -> Iterator[OfficialSample]:
    """The samples of the questions, before their images and masks are checked."""
    scenes = release.files.records("CLEVR-XAI_scenes.json", "scenes")
    questions = release.files.records(f"CLEVR-XAI_{release.questions}_questions.json", "questions")
    release._scenes = {_stem(str(scene.get("image_filename"))): scene for scene in scenes}
    material = [question for question in questions if asks_for_material(question)]
    release.totals = {"scenes": len(scenes), "questions": len(questions), "material questions": len(material)}
    for question in material:
        scene = release._scenes.get(_stem(str(question.get("image_filename") or question.get("image"))))
        reason, sample = "its scene is missing", None
        if scene is not None:
            try:
                reason, sample = _RARE, official_sample(question, scene)
            except InputError:
                reason = "the question or its scene is not in the official format"
        if sample is None:
            release.dropped[reason] += 1
        else:
            yield sample


def _keep_or_drop(release: Release, sample: OfficialSample) -> None:
    """Read the sample's image and masks once: unreadable files must be reported before training starts."""
    try:
        release.without_dominant += "dominant" not in release.masks(sample)
        release.samples.append(sample)
    except UnusableSample as error:
        release.dropped[str(error)] += 1


def _stem(filename: str) -> str:
    """The image's name without folder and suffix: what a scene and its questions have in common."""
    return PurePath(filename).stem
