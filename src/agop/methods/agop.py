"""AGOP: where × what × which, the product of the prior's knowledge and the evidence for the class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

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
# The exponent of V rises from 0 to 8 while its sharpness rises from 0.2 to 0.3.
_EXPONENT, _SMOOTH, _SHARP = 8.0, 0.2, 0.3
# Sharpness is measured on at most 16×16 cells, relative to a Gaussian blur whose σ is a quarter of their side.
_CELLS, _BLUR = 16, 4
# Where the class map is 0, the other factors still order the pixels.
_FLOOR = 1e-6


@dataclass(frozen=True)
class WhereWhatWhich(ReferenceMethod):
    """Where × what × which: places, patterns and class evidence that the model relies on, multiplied.

    - where: V^c, with V = sqrt(diag(M) / max), the pixels on which the model relies in the training data. If they
      differ from image to image, V is smooth, as if objects only tended to lie in the middle, and takes no part: its
      sharpness κ = 1 − mean(U)² / mean(U²), with U = V divided by a smooth profile, sets the exponent,
      c = 8 · clip((κ − 0.2) / 0.1, 0, 1). V of fewer than 100 samples is uneven by chance and takes no part either.
    - what: the mean of ‖S^½ (o_p − mean o)‖ over the patches p that contain the pixel, the patterns of the first layer
      on which it relies. Needs a prior with a patch matrix.
    - which, fine: the mean of |(x − b) · ∂f/∂x| on paths from reference images b, as in agop-expected. The references
      are those of the prior (drawn from its mean and standard deviation of each pixel) unless `references` are passed.
    - which, coarse: GradCAM of the last block of feature maps (or `layer`), if its map has at least 7×7 values.

    V and S are half those of the target's class if the prior has enough samples of it. `what` replaces the second
    factor by a control: activation-norm (the same without S), sobel, or mean-difference, |x − mean of the training|.
    """

    name: ClassVar[str] = "agop"
    needs_prior: ClassVar[bool] = True
    layer_is_optional: ClassVar[bool] = True
    what: str = WHAT[0]
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
        weights = job.prior.weights_for(classes)
        exponent = _EXPONENT * ((_sharpness(weights) - _SMOOTH) / (_SHARP - _SMOOTH)).clamp(0, 1)
        return weights.mean(dim=1) ** exponent[:, None, None]

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


def _sharpness(weights: Tensor) -> Tensor:
    """Unevenness (N,) of weights (N,C,H,W) relative to their smooth profile, in 0..1."""
    squares = weights.square().sum(dim=1, keepdim=True)
    cells = functional.adaptive_avg_pool2d(squares, (min(_CELLS, squares.shape[2]), min(_CELLS, squares.shape[3])))
    profile = _blurred(_blurred(cells).transpose(2, 3)).transpose(2, 3)
    relative = (cells / torch.where(profile > 0, profile, 1)).sqrt()
    return (1 - relative.mean(dim=(1, 2, 3)).square() / relative.square().mean(dim=(1, 2, 3))).nan_to_num(0.0)


def _blurred(cells: Tensor) -> Tensor:
    """Cells (N,1,h,w) blurred along their rows by a Gaussian, edges repeated."""
    sigma = cells.shape[3] / _BLUR
    reach = max(1, int(2 * sigma))
    kernel = torch.exp(-0.5 * (torch.arange(-reach, reach + 1).to(cells) / sigma) ** 2)
    padded = functional.pad(cells, (reach, reach, 0, 0), mode="replicate")
    return functional.conv2d(padded, (kernel / kernel.sum())[None, None, None])


def _scaled(maps: Tensor) -> Tensor:
    """Maps divided by their maximum; maps of zeros as they are."""
    largest = maps.amax(dim=(1, 2), keepdim=True)
    return maps / torch.where(largest > 0, largest, 1)
