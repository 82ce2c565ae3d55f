"""AGOP: where × what × which, the product of the prior's knowledge and the evidence for the class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from agop.errors import InputError, LayerError
from agop.methods.base import Job, product
from agop.methods.channels import edges, sum_channels
from agop.methods.layer_method import mean_gradient, weighted_maps
from agop.methods.patches import patch_maps
from agop.methods.prior_patches import class_patch_maps, prior_layer
from agop.methods.reference_method import ReferenceMethod
from agop.model.default_layer import default_layer
from agop.model.layers import COARSE_BELOW, Layer, map_size, named_layer
from agop.statistic.agop import ENOUGH_SAMPLES

WHAT = ("patch-matrix", "activation-norm", "sobel", "mean-difference")
# The exponent of V rises from 0 to 8 while the unevenness of V rises from 0.25 to 0.45.
_EXPONENT, _EVEN, _UNEVEN = 8.0, 0.25, 0.45
# Where the class map is 0, the other factors still order the pixels.
_FLOOR = 1e-6


@dataclass(frozen=True)
class WhereWhatWhich(ReferenceMethod):
    """Where × what × which: places, patterns and class evidence that the model relies on, multiplied.

    - where: V^c, with V = sqrt(diag(M) / max), the pixels on which the model relies in the training data. Where
      gradients move with the object, V is nearly even and takes no part: its unevenness
      κ = 1 − mean(V)² / mean(V²) sets the exponent, c = 8 · clip((κ − 0.25) / 0.2, 0, 1). V of fewer than 100 samples
      is uneven by chance and takes no part either.
    - what: the mean of ‖S^½ (o_p − mean o)‖ over the patches p that contain the pixel, the patterns of the first layer
      on which it relies. Needs a prior with a patch matrix.
    - which, fine: the mean of |(x − b) · ∂f/∂x| on paths from reference images b, as in agop-expected. The references
      are those of the prior (drawn from its mean and standard deviation of each pixel) unless `references` are passed.
    - which, coarse: GradCAM of the last block of feature maps (or `layer`), if its map has at least 7×7 values.

    A model that is at chance on the prior's images has learned nothing to show. Its map is even: otherwise it would
    show what stands out in the image.

    V and S are half those of the target's class if the prior has enough samples of it. `what` replaces the second
    factor by a control: activation-norm (the same without S), sobel, or mean-difference, |x − mean of the training|.
    """

    name: ClassVar[str] = "agop"
    needs_prior: ClassVar[bool] = True
    layer_is_optional: ClassVar[bool] = True
    what: str = "patch-matrix"
    layer: Layer = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.what not in WHAT:
            raise InputError(f"{self.name}: what is {self.what!r}: give {', '.join(WHAT)}")

    def maps(self, job: Job) -> Tensor:
        return product(self.factors(job))

    def factors(self, job: Job) -> dict[str, Tensor]:
        """The factors that take part, each (N,H,W) with a maximum of 1 in every image."""
        classes = job.classes
        job = replace(job, targets=classes)
        if job.prior.provenance.at_chance:
            return {"where": torch.ones_like(job.images[:, 0])}
        which = sum_channels(self.mean_term(job, torch.abs))
        factors = {
            "where": self._where(job, classes),
            "what": self._what(job, classes),
            "which": which,
            "class map": self._class_map(job),
        }
        return {name: _scaled(maps.to(which)) for name, maps in factors.items() if maps is not None}

    def _where(self, job: Job, classes: Tensor) -> Tensor | None:
        if job.prior.count < ENOUGH_SAMPLES:
            return None
        weights = job.prior.weights_for(classes).mean(dim=1)
        unevenness = 1 - weights.mean(dim=(1, 2)).square() / weights.square().mean(dim=(1, 2))
        exponent = _EXPONENT * ((unevenness - _EVEN) / (_UNEVEN - _EVEN)).clamp(0, 1)
        return weights ** exponent[:, None, None]

    def _what(self, job: Job, classes: Tensor) -> Tensor | None:
        if self.what == "sobel":
            return edges(job.images)
        if self.what == "mean-difference":
            return sum_channels(job.images - job.references.mean(dim=0))
        if job.prior.patch_matrix is None:
            return None
        if self.what == "activation-norm":
            return patch_maps(job.probe, job.images, prior_layer(job), centred=True)
        return class_patch_maps(job, classes, centred=True)

    def _class_map(self, job: Job) -> Tensor | None:
        """GradCAM's maps; 1 for an image without evidence. None if the model has no maps, or only coarse ones."""
        image = job.images[:1]
        try:
            layer = named_layer(job.probe.model, self.layer or default_layer(job.probe, image))[1]
        except LayerError:
            if self.layer is not None:
                raise
            return None
        if min(map_size(job.probe, image, layer)) < COARSE_BELOW:
            return None
        maps = weighted_maps(job, layer, mean_gradient)
        largest = maps.amax(dim=(1, 2), keepdim=True)
        return maps + torch.where(largest > 0, _FLOOR * largest, 1)


def _scaled(maps: Tensor) -> Tensor:
    """Maps divided by their maximum; maps of zeros as they are."""
    largest = maps.amax(dim=(1, 2), keepdim=True)
    return maps / torch.where(largest > 0, largest, 1)
