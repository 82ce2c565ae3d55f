"""The official CLEVR-XAI release as the paper's samples: what was found, kept and dropped, and why."""

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
from agop.scenarios.clevr.release import truth
from agop.scenarios.clevr.release.archive import NEXT_STEP, Files
from agop.scenarios.clevr.release.masks import Mask
from agop.scenarios.clevr.release.questions import OfficialSample, asks_for_material, official_sample
from agop.scenarios.clevr.task import KINDS
from agop.system.progress import track

QUESTIONS = ("simple", "complex")
_RARE = "fewer than 60 % of its scene's objects are of the queried material"


@dataclass
class Release:
    """The samples of a release, each of which has a picture and masks that were read once.

    Of the material questions in `found`, each is either in `samples` or counted in `dropped` under its reason.
    """

    files: Files
    questions: str
    samples: list[OfficialSample] = field(default_factory=list)
    found: dict[str, int] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    without_dominant: int = 0
    _scenes: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)

    @property
    def kept(self) -> int:
        """How many samples there are."""
        return len(self.samples)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of masks that can be told: "dominant" only if there are mask pictures."""
        return KINDS if self.without_dominant < self.kept else KINDS[:2]

    def picture(self, sample: OfficialSample, size: int) -> NDArray[np.uint8]:
        """The sample's picture (size,size,3), squeezed to a square with antialiasing."""
        whole = truth.picture(self.files, sample.image_filename)
        return np.array(whole.resize((size, size), Image.Resampling.BILINEAR))

    def masks(self, sample: OfficialSample) -> dict[str, Mask]:
        """The masks "all_objects", "single_object" and "dominant", each (H,W); most are 128×128.

        "dominant" can only be told from a mask picture, and is left out where there is none.
        """
        return truth.masks(self.files, sample, self._scenes[_image(sample.image_filename)], self.questions)

    def summary(self) -> str:
        """A few lines: what was found, kept and dropped, and why."""
        metal = sum(sample.label == 0 for sample in self.samples)
        pictures = len({sample.image_filename for sample in self.samples})
        lines = [
            f"found: {', '.join(f'{count:,} {what}' for what, count in self.found.items())}",
            f"kept: {self.kept:,} samples on {pictures:,} pictures, {metal:,} metal and {self.kept - metal:,} rubber",
            *(f"dropped: {count:,}, {reason}" for reason, count in self.dropped.most_common()),
        ]
        if self.without_dominant:
            left = "left out of a bench" if "dominant" in self.kinds else "scored by the other kinds of masks"
            lines.append(f"incomplete: {self.without_dominant:,} without a mask picture that fits, {left}")
        return "\n".join(lines)


def read_release(folder: Path, report: Callable[[str], None] = lambda line: None, questions: str = "simple") -> Release:
    """The paper's samples from a folder with the official files, unpacked or not, or from one of the two archives.

    By default those of the simple questions: they ask for a material about once a scene, and about half of these
    questions pass the 60 % rule, which is how the paper comes by 4,952 of 10,000 scenes.
    """
    if questions not in QUESTIONS:
        raise unknown_name_error("kind of question", questions, QUESTIONS)
    release = Release(Files(Path(folder)), questions)
    report("reading the scenes and questions")
    asked = list(_asked(release))
    report(f"checking the pictures and masks of {len(asked):,} samples")
    for sample in track(asked, "checking pictures and masks"):
        _keep_or_drop(release, sample)
    if not release.samples:
        raise FileError(f"{folder} has no sample that can be used: {NEXT_STEP}. {_reasons(release)}")
    return release


def _asked(release: Release) -> Iterator[OfficialSample]:
    """The samples of the questions, before their pictures and masks are looked at."""
    scenes = release.files.records("CLEVR-XAI_scenes.json", "scenes")
    asked = release.files.records(f"CLEVR-XAI_{release.questions}_questions.json", "questions")
    release._scenes = {_image(str(scene.get("image_filename"))): scene for scene in scenes}
    material = [question for question in asked if asks_for_material(question)]
    release.found = {"scenes": len(scenes), "questions": len(asked), "material questions": len(material)}
    for question in material:
        scene = release._scenes.get(_image(str(question.get("image_filename") or question.get("image"))))
        reason, sample = "its scene is missing", None
        if scene is not None:
            try:
                reason, sample = _RARE, official_sample(question, scene)
            except InputError:
                reason = "the question or its scene is not in the official form"
        if sample is None:
            release.dropped[reason] += 1
        else:
            yield sample


def _keep_or_drop(release: Release, sample: OfficialSample) -> None:
    """Read the sample's picture and masks once: what cannot be read must be gone before a training begins."""
    try:
        release.without_dominant += "dominant" not in release.masks(sample)
        release.samples.append(sample)
    except truth.Unusable as fault:
        release.dropped[str(fault)] += 1


def _reasons(release: Release) -> str:
    reasons = "; ".join(f"{count:,} dropped: {reason}" for reason, count in release.dropped.most_common())
    return f"Found {release.found.get('material questions', 0):,} material questions" + (f"; {reasons}" * bool(reasons))


def _image(filename: str) -> str:
    """What a scene and its questions have in common: the picture's name without folder and ending."""
    return PurePath(filename).stem
