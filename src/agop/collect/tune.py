"""tune(): the exponent of the factor *where* of the method `agop`, chosen without masks."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from agop.explanation import explain
from agop.methods.agop import AGOPMethod
from agop.metrics.faithfulness import srg
from agop.model.outputs import OutputLike
from agop.prior.agop import AGOP, ENOUGH_SAMPLES
from agop.processes import track

# Images on which maps are scored.
SCORED = 64
EXPONENTS = (0, 1, 2, 4, 8)
# Differences of fewer standard errors mean nothing: the larger exponent stays.
_ERRORS = 2


class Sample:
    """Up to 64 images of all that `add` has seen, each with the same chance, in memory only."""

    def __init__(self) -> None:
        self.images: list[Tensor] = []
        self._seen = 0
        self._generator = torch.Generator("cpu").manual_seed(0)

    def add(self, images: Tensor) -> None:
        """Add images (N,C,H,W): image number n replaces one of those kept with a chance of 64/n."""
        for image in images:
            self._seen += 1
            if len(self.images) < SCORED:
                self.images.append(image.detach().clone())
                continue
            place = int(torch.randint(self._seen, (), generator=self._generator))
            if place < SCORED:
                self.images[place] = image.detach().clone()


def tune(
    model: nn.Module, prior: AGOP, images: Tensor, output: OutputLike | None = None, *, progress: bool = True
) -> AGOP:
    """The prior with the exponent of V that suits these images (N,C,H,W) of the training data.

    It is the largest one whose SRG, insertion minus deletion with other images as the fill, is within 2 standard errors
    of the best. Nothing is chosen if *where* takes no part: for networks with feature maps of 14×14 or more, even
    diagonals, fewer than 100 samples, and models at chance.
    Blücher et al., "Decoupling Pixel Flipping and Occlusion Strategy for Consistent XAI Benchmarks", 2024.
    """
    if len(images) < 2 or prior.count < ENOUGH_SAMPLES or prior.provenance.at_chance or prior.is_even:
        return prior
    output = prior.provenance.output if output is None else output
    options: dict[str, Any] = {"nan": "skip", "factors": True, "output": output}
    if "where" not in explain(model, images[:1], AGOPMethod(where=1), prior, **options)[1]:
        return prior
    factors = explain(model, images, AGOPMethod(where=1), prior, **options)[1]
    places = factors.pop("where")
    rest = torch.stack(list(factors.values())).prod(dim=0)
    scores = {
        exponent: srg(model, images, rest * places**exponent, references=images, output=output)
        for exponent in track(EXPONENTS, "choosing factors", show=progress)
    }
    means = {exponent: float(values.nanmean()) for exponent, values in scores.items()}
    best = max(EXPONENTS, key=lambda exponent: means[exponent])

    def errors_behind(exponent: int) -> float:
        """How many standard errors the exponent is behind the best one, image by image."""
        gaps = scores[best] - scores[exponent]
        gaps = gaps[gaps.isfinite()]
        return float(gaps.mean() / (gaps.std() / len(gaps) ** 0.5).clamp_min(1e-12))

    chosen = max(e for e in EXPONENTS if e == best or errors_behind(e) <= _ERRORS)
    table = {str(exponent): round(mean, 4) for exponent, mean in means.items()}
    return replace(prior, provenance=replace(prior.provenance, tuned={"where": chosen, "srg": table}))
