"""Finding: something that decides a class, in figures and in one sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from agop.auditing.proposals import BORDER, COLOUR, HIGH_FREQUENCY, PATCH, PatchProposal
from agop.auditing.regions import box_of, place_in_words
from agop.auditing.trial import Trial

NEXT_STEPS = {
    PATCH: "Look for the patch in the images of the class. Mask it, or collect images without it, retrain, and audit "
    "the new model.",
    COLOUR: "Compare how the images of the classes were taken. Augment colours and contrast, retrain, and audit the "
    "new model.",
    BORDER: "Crop the images, or collect images without the frame, retrain, and audit the new model.",
    HIGH_FREQUENCY: "Compare compression, scaling and cameras of the classes. Blur or resample all images in the same "
    "way, retrain, and audit the new model.",
}
_REGION_STEPS = (
    "Look at the region in the images of the class. Mask it, or collect images without it, retrain, and audit the new "
    "model."
)


@dataclass(frozen=True, eq=False)
class Finding:
    """Something that decides a class.

    `effect` is the mean change of P(class) with its 95 % `interval`, `control` that of the strongest control, and
    `prevalence` the share of the class's images that contain it. `region` (H,W) is None if it has no fixed place.
    `ranked` are images (M,C,H,W) of the class, those that contain it most first.
    """

    kind: str
    class_index: int
    region: Tensor | None
    effect: float
    interval: tuple[float, float]
    control: float
    prevalence: float
    sentence: str
    ranked: Tensor = field(repr=False)

    @property
    def next_steps(self) -> str:
        """What to do about it."""
        return NEXT_STEPS.get(self.kind, _REGION_STEPS)

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON values, without its images."""
        box = None if self.region is None else box_of(self.region)
        return {
            "kind": self.kind,
            "class_index": self.class_index,
            "region": None if box is None else [box.top, box.left, box.bottom, box.right],
            "effect": self.effect,
            "interval": list(self.interval),
            "control": self.control,
            "prevalence": self.prevalence,
            "sentence": self.sentence,
            "next_steps": self.next_steps,
        }


def sentence(trial: Trial, name: str, prevalence: float, lost: float | None = None) -> str:
    """What was tested and what it changed, in plain words with figures.

    `lost` is the share of the class's images that are no longer recognised without it.
    """
    subject, pasted, control = _words(trial)
    verb = "decides" if trial.turned >= 0.5 else "influences"
    without = "" if lost is None else f" Without it, {_percent(lost)} of them are no longer recognised."
    return (
        f"{subject} {verb} {class_label(name)}: {pasted} {trial.pairs:,} other images it turns "
        f"{_percent(trial.turned)} into {name} ({control}: {_percent(trial.control_turned)}) and raises the "
        f"probability of {name} by {trial.effect.value:.2f} ({control}: {trial.control:.2f}). "
        f"{_percent(prevalence)} of the {name} images contain it.{without}"
    )


def class_label(name: str) -> str:
    """The name of a class after the word "class", unless it starts with it."""
    return name if name.startswith("class ") else f"class {name}"


def _words(trial: Trial) -> tuple[str, str, str]:
    """Subject, verb and controls of a sentence."""
    proposal = trial.proposal
    if proposal.region is not None:
        box = box_of(proposal.region)
        height, width = proposal.region.shape
        place = place_in_words(box, (height, width))
        return f"A {box.height}×{box.width} region at the {place}", "pasted into", "control regions"
    if isinstance(proposal, PatchProposal):
        return f"A {proposal.side}×{proposal.side} patch at any place", "pasted into", "control patches"
    subject = {COLOUR: "The colour and contrast of the image", BORDER: "The border of the image"}
    return subject.get(proposal.kind, "The high-frequency band of the image"), "given to", "controls"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
