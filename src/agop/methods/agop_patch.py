"""AGOP-Patch: where × what, from the outputs of one early layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from agop.methods.base import Job, Method
from agop.methods.prior_patches import class_patch_maps, prior_patch_maps


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
            maps = prior_patch_maps(job)
        else:
            classes = job.classes
            weights = job.prior.weights_for(classes)
            maps = class_patch_maps(job, classes)
        return maps * weights.mean(dim=-3).to(maps)
