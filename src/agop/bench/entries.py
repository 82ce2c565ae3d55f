"""The methods of a bench by name: a method, a variant of one (METHOD@VARIANT), or a control."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn import functional

from agop import methods
from agop.errors import InputError
from agop.evaluating.controls import FIXED_MAPS
from agop.evaluating.scoring import Entry
from agop.methods.base import Method, missing_layer, takes_layer
from agop.methods.integrated_gradients import Baseline, IntegratedGradients
from agop.runs.spec import Cell
from agop.scenarios import Scenario, Split
from agop.statistic.agop import AGOP

BASELINES = ("zero", "black", "mean", "blurred", "training")
_SEVERAL = 5


@dataclass(frozen=True)
class Entries:
    """Resolves the names of a bench in one cell, from its scenario, training data, and priors by kind."""

    scenario: Scenario
    training: Split
    priors: dict[str, AGOP]
    cell: Cell

    def entry(self, name: str) -> Entry:
        """The configured method of that name. Raises InputError for an unknown variant."""
        base, _, variant = name.partition("@")
        prior = self.priors[self.scenario.prior]
        if name in FIXED_MAPS:
            return Entry(FIXED_MAPS[name](self.training.masks != 0))
        method = self._seeded(methods.create(base))
        if not variant:
            layer = missing_layer(method, self.scenario.layer)
            return Entry(method, prior, layer, references_from_prior=method.needs_prior)
        if takes_layer(method):
            return Entry(method, prior, variant, references_from_prior=method.needs_prior)
        if method.needs_prior and variant in self.priors:
            return Entry(method, self.priors[variant], references_from_prior=True)
        if isinstance(method, IntegratedGradients) and variant in BASELINES:
            return Entry(replace(method, baseline=self._baseline(variant)), prior)
        raise InputError(
            f"{base} has no variant {variant!r}: variants are gradcam@LAYER, agop-global@training, "
            "integrated-gradients@black …"
        )

    def unusable(self, name: str) -> str | None:
        """The reason why the network can't be explained by the method of this name, if there is one."""
        if name in FIXED_MAPS:
            return None
        method = methods.create(name.partition("@")[0])
        if self.scenario.layer is None and takes_layer(method) and not method.layer_is_optional:
            return "the network has no feature maps"
        if method.needs_prior and not self.priors[self.scenario.prior].diagonal.any():
            return "diag(M) is zero: the logits don't depend on the image"
        return methods.lacking(name.partition("@")[0], self.priors[self.scenario.prior], with_references=True)

    def layers(self, names: Iterable[str]) -> set[str]:
        """Layers of the methods of these names."""
        return {layer for name in names if isinstance(layer := self.entry(name).layer, str)}

    def _seeded(self, method: Method) -> Method:
        """The method with random numbers of its own in this cell: the same noise in every cell would be one sample."""
        if not any(field.name == "seed" for field in fields(method)):
            return method
        return replace(method, seed=zlib.crc32(f"{self.cell.name}/{method.seed}".encode()))  # type: ignore[attr-defined, call-arg]

    def _baseline(self, name: str) -> Baseline:
        images = self.training.images
        if name == "zero":
            return 0.0
        if name == "black":
            if self.scenario.black is None:
                raise InputError(f"{self.scenario.name} doesn't define black: choose another baseline than @black")
            return torch.tensor(self.scenario.black)[:, None, None].expand_as(images[0])
        if name == "mean":
            return images.mean(dim=(0, 2, 3))[:, None, None].expand_as(images[0])
        if name == "training":
            return images[:_SEVERAL]
        return _blurred


def _blurred(images: Tensor) -> Tensor:
    """Images (N,C,H,W) blurred by a Gaussian; sigma is a tenth of their side."""
    sigma = images.shape[-1] / 10
    reach = int(2 * sigma)
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / sigma) ** 2).to(images)
    line = (weights / weights.sum()).expand(images.shape[1], 1, 1, -1)
    padded = functional.pad(images, (reach,) * 4, mode="replicate")
    across = functional.conv2d(padded, line, groups=images.shape[1])
    return functional.conv2d(across, line.transpose(2, 3), groups=images.shape[1])
