"""LayerMethod: the base class of GradCAM and its variants, a weighted sum of feature maps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from agop.methods.base import Job, Method
from agop.model.layers import FeatureMaps, Layer, feature_maps, layer_for


@dataclass(frozen=True)
class LayerMethod(Method):
    """ReLU(Σ_k w_k · A_k) of a layer's feature maps A (N,D,h,w), scaled bilinearly to the image size.

    The layer is a name, a module, or by default the last block of feature maps.
    """

    layer: Layer = None

    def prepared(self, job: Job) -> LayerMethod:
        return replace(self, layer=layer_for(job.probe, job.images[:1], self.layer))

    def maps(self, job: Job) -> Tensor:
        return weighted_maps(job, self.layer, self.weights)

    @abstractmethod
    def weights(self, features: FeatureMaps) -> Tensor:
        """Weights (N,D) of the feature maps."""


def weighted_maps(job: Job, layer: Layer, weights: Callable[[FeatureMaps], Tensor]) -> Tensor:
    """ReLU(Σ_k w_k · A_k) (N,H,W) of a layer's feature maps, with weights (N,D) from their gradients."""
    features = feature_maps(job.probe, job.images, job.targets, layer)
    coarse = torch.einsum("nd,ndhw->nhw", weights(features), features.activations).relu()
    size = job.images.shape[-2:]
    return functional.interpolate(coarse[:, None], size, mode="bilinear", align_corners=False)[:, 0]


def mean_gradient(features: FeatureMaps) -> Tensor:
    """GradCAM's weights (N,D): the mean gradient of each feature map."""
    return features.gradients.mean(dim=(2, 3))
