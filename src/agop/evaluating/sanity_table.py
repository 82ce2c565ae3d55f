"""The result of a sanity check: prints as a table with a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from agop.report.estimate import Estimate
from agop.report.numbers import counted

# Maps of a network without any trained weight that correlate this much with those of the trained one.
THRESHOLD = 0.95


@dataclass(frozen=True, repr=False)
class Sanity:
    """Rank correlations (S,N) of maps with those of the trained model, after each step of randomising its weights.

    `layers` (S) are the names of the layers that each step adds. The last step has randomised all of them.
    """

    method: str
    layers: tuple[tuple[str, ...], ...]
    correlations: Tensor
    unchanged: bool
    with_prior: bool = False

    @property
    def model_independent(self) -> bool:
        """True if the maps don't change when all weights are random, or have a mean correlation of at least 0.95.

        The correlation counts if it's defined for at least half of the images.
        """
        last = self._estimates()[-1]
        if last is None or 2 * len(last.values) < self._images:
            return self.unchanged
        return self.unchanged or last.mean >= THRESHOLD

    @property
    def _images(self) -> int:
        return self.correlations.shape[1]

    def _estimates(self) -> list[Estimate | None]:
        """Mean correlation of each step with its interval; None if it's undefined for every image."""
        defined = [tuple(row[~row.isnan()].tolist()) for row in self.correlations]
        return [Estimate(values, (-1.0, 1.0)) if values else None for values in defined]

    def __repr__(self) -> str:
        """A table of the steps, and a verdict."""
        names = [_step(step, number == len(self.layers)) for number, step in enumerate(self.layers, 1)]
        width = max(map(len, ("randomised", *names)))
        texts = map(self._text, self._estimates())
        rows = zip(("randomised", "nothing", *names), ("correlation", "1.000", *texts), strict=True)
        start = f"rank correlation of {self.method} maps with those of the trained model: means over "
        notes = ["an image isn't counted if one of its maps is constant"] if self.correlations.isnan().any() else []
        return "\n".join(
            [f"{start}{counted(self._images, 'image')} with 95 % intervals"]
            + [f"{name.ljust(width)}  {text}" for name, text in rows]
            + [*notes, self._verdict()]
        )

    def _text(self, estimate: Estimate | None) -> str:
        """Mean and interval, with the number of images if it isn't defined for all."""
        count = 0 if estimate is None else len(estimate.values)
        few = "" if count == self._images else f" ({count} of {counted(self._images, 'image')})"
        return ("–" if estimate is None else str(estimate)) + few

    def _verdict(self) -> str:
        if not self.model_independent:
            return "the maps depend on the model's weights"
        given = " given the prior, which is that of the trained model in every step" if self.with_prior else ""
        how = "don't change at all" if self.unchanged else f"hardly change (correlation of at least {THRESHOLD})"
        return f"model-independent{given}: the maps {how} when all weights are random"


def _step(layers: Sequence[str], last: bool) -> str:
    """What a step randomises, for the table."""
    name = layers[-1] or "the model's own parameters"
    return f"all layers, down to {name}" if last else f"down to {name}"
