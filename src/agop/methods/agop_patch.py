"""AGOP-Patch: where × what, from the outputs of one early layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from agop.errors import LayerError, PriorError
from agop.methods.base import Job, Method
from agop.methods.patches import patch_maps
from agop.model.layers import named_layer
from agop.model.patch_layer import no_convolution_error
from agop.statistic.agop import AGOP
from agop.statistic.patch_matrix import square_root


@dataclass(frozen=True)
class AGOPPatch(Method):
    """The prior's weight of each pixel times how much the model relies on the patches around it.

    V_i times the mean of ‖S^½ o_p‖ over the patches p that contain pixel i. V_i is the mean over channels of
    sqrt(diag(M) / max diag(M)), S the patch matrix, and o_p = W·patch_p the output of its layer without bias. V and S
    are half those of the target's class if the prior has enough samples of it; then the predicted classes are computed
    unless targets are passed. Otherwise the model runs only up to that layer, and the map is the same for every target.
    """

    name: ClassVar[str] = "agop-patch"
    needs_prior: ClassVar[bool] = True
    prior_parts: ClassVar[tuple[str, ...]] = ("patch_matrix",)

    def maps(self, job: Job) -> Tensor:
        if job.prior.class_diagonals is None:
            weights = job.prior.weights
            maps = patch_maps(job.probe, job.images, prior_layer(job), _root(job.prior, None))
        else:
            classes = job.classes
            weights = job.prior.weights_for(classes)
            maps = class_patch_maps(job, classes)
        return maps * weights.mean(dim=-3).to(maps)


def class_patch_maps(job: Job, classes: Tensor, centred: bool = False) -> Tensor:
    """Patch maps (N,H,W), each by the patch matrix for its class (N,)."""
    layer, classes = prior_layer(job), classes.to(job.images.device)
    present: list[int] = sorted(set(classes.tolist()))
    parts = [
        patch_maps(job.probe, job.images[classes == index], layer, _root(job.prior, index), centred=centred)
        for index in present
    ]
    maps = torch.empty(len(classes), *job.images.shape[-2:], dtype=parts[0].dtype, device=parts[0].device)
    for index, own in zip(present, parts, strict=True):
        maps[(classes == index).to(maps.device)] = own
    return maps


def prior_layer(job: Job) -> nn.Module:
    """The model's layer of the prior's patch matrix."""
    prior, model = job.prior, job.probe.model
    if prior.patch_matrix is None or prior.layer is None:
        if not any(isinstance(module, nn.Conv2d) for module in model.modules()):
            raise no_convolution_error(model)
        raise PriorError("the prior has no patch matrix: make one with agop.fit(model, loader) or `agop fit`")
    try:
        return named_layer(model, prior.layer)[1]
    except LayerError as error:
        raise PriorError(f"the prior's patch matrix is that of layer {prior.layer!r}: {error}") from error


def _root(prior: AGOP, class_index: int | None) -> Tensor:
    """A matrix R (D,D) with RᵀR = S / tr(S): squares of small gradients would underflow in float32."""
    matrix = prior.patch_matrix if class_index is None else prior.patch_matrix_for(class_index)
    if matrix is None or not matrix.trace() > 0:
        raise PriorError(
            f"the patch matrix of layer {prior.layer!r} is zero: the model's output doesn't depend on this layer; "
            "check the model, or name another layer in agop.fit"
        )
    return square_root(matrix / matrix.trace())
