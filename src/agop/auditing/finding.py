"""Finding: something that decides a class, in figures and in one sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from agop.auditing.containing import Containing
from agop.auditing.proposals import BORDER, COLOUR, HIGH_FREQUENCY, PATCH, PatchProposal, PropertyProposal, Proposal
from agop.auditing.regions import box_of, ends_of, place_in_words
from agop.auditing.trial import Trial

NEXT_STEPS = {
    PATCH: "Look for the patch in the images of the class. Mask it, or collect images without it, retrain, and compare "
    "both models.",
    COLOUR: "Compare how the images of the classes were taken. Augment colours and contrast, retrain, and compare "
    "both models.",
    BORDER: "Crop the images, or collect images without the frame, retrain, and compare both models.",
    HIGH_FREQUENCY: "Compare compression, scaling and cameras of the classes. Blur or resample all images in the same "
    "way, retrain, and compare both models.",
}
_REGION_STEPS = (
    "Look at the region in the images of the class. If it shows the object itself, nothing is wrong. Otherwise mask "
    "it, or collect images without it, retrain, and compare both models."
)


@dataclass(frozen=True, eq=False)
class Finding:
    """Something that decides a class.

    `effect` is the mean change of P(class) with its 95 % `interval`, `control` that of the strongest control, and
    `prevalence` the share of the class's images that contain it. `region` (H,W) is None if it has no fixed place.
    `contained` are images of the class with a score of how much they contain it, and `maps` (M,H,W) their maps by
    agop-weighted.
    """

    kind: str
    class_index: int
    region: Tensor | None
    effect: float
    interval: tuple[float, float]
    control: float
    prevalence: float
    sentence: str
    contained: Containing = field(repr=False)
    maps: Tensor = field(repr=False)

    @property
    def ranked(self) -> Tensor:
        """Images (M,C,H,W) of the class, those that contain it most first."""
        return self.contained.ranked

    @property
    def box(self) -> list[int] | None:
        """Top, left, bottom and right of the region; None for a border and what has no fixed place."""
        return None if self.kind == BORDER else ends_of(self.region)

    @property
    def next_steps(self) -> str:
        """What to do about it."""
        return NEXT_STEPS.get(self.kind, _REGION_STEPS)

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON values, without its images."""
        return {
            "kind": self.kind,
            "class_index": self.class_index,
            "region": self.box,
            "effect": self.effect,
            "interval": list(self.interval),
            "control": self.control,
            "prevalence": self.prevalence,
            "sentence": self.sentence,
            "next_steps": self.next_steps,
        }


def sentence(trial: Trial, name: str, contained: Containing, lost: float | None = None) -> str:
    """What was tested and what it changed, in plain words with figures.

    `lost` is the share of the images that contain it which are no longer recognised without it.
    """
    subject, pasted = subject_in_words(trial.proposal), "pasted into"
    if isinstance(trial.proposal, PropertyProposal):
        pasted = "given to"
    verb = "decides" if trial.turned >= 0.5 else "influences"
    without = "" if lost is None else f" With it removed, {_percent(lost)} are no longer recognised."
    return (
        f"{subject} {verb} {class_label(name)}: {pasted} {trial.pairs:,} other images it turns "
        f"{_percent(trial.turned)} into {name} (from {trial.control_images}: {_percent(trial.control_turned)}) and "
        f"raises the probability of {name} by {trial.effect.value:.2f} (from {trial.control_images}: "
        f"{trial.control:.2f}). "
        f"{_percent(contained.share)} of the {name} images contain it; {_recognised(contained)}."
        f"{without}{_doubt(trial.proposal)}"
    )


def _recognised(contained: Containing) -> str:
    having, lacking = contained.recognised_shares
    others = "" if math.isnan(lacking) else f" and {_percent(lacking)} of the others"
    return f"{_percent(having)} of these{others} are recognised"


def class_label(name: str) -> str:
    """The name of a class after the word "class", unless it starts with it."""
    return name if name.startswith("class ") else f"class {name}"


def subject_in_words(proposal: Proposal) -> str:
    """The subject of a sentence."""
    if proposal.region is not None:
        box = box_of(proposal.region)
        height, width = proposal.region.shape
        return f"A {box.height}×{box.width} region at the {place_in_words(box, (height, width))}"
    if isinstance(proposal, PatchProposal):
        return f"A {proposal.side}×{proposal.side} patch at any place"
    subject = {COLOUR: "The colour and contrast of the image", BORDER: "The border of the image"}
    return subject.get(proposal.kind, "The high-frequency band of the image")


def _doubt(proposal: Proposal) -> str:
    """What all images of a class have may be the object. Images with and without it would show the difference."""
    doubt = " Nearly all images of the class have it and nearly no others: is it a part of the object?"
    return doubt if proposal.shared else ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
