"""Class activation maps: GradCAM and GradCAM++."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

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


@dataclass(frozen=True)
class GradCAM(LayerMethod):
    """Feature maps weighted by their mean gradient: w_k = mean of ∂f/∂A_k.

    Selvaraju et al., "Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization", 2017.

    Args:
        layer: The layer, by name or module; by default the last block of feature maps.

    Example:
        maps = agop.explain(model, images, "gradcam", layer="layer3")
    """

    name: ClassVar[str] = "gradcam"

    def weights(self, features: FeatureMaps) -> Tensor:
        return mean_gradient(features)


@dataclass(frozen=True)
class GradCAMPlusPlus(LayerMethod):
    """Feature maps weighted by their positive gradients, with a weight per pixel.

    w_k = Σ_ij α_ij · ReLU(g_ij) with α_ij = g_ij² / (2 g_ij² + Σ_ab A_ab · g_ij³), 0 where g_ij = 0.
    Chattopadhyay et al., "Grad-CAM++: Generalized Gradient-based Visual Explanations for Deep Convolutional Networks",
    2018.

    Args:
        layer: The layer, by name or module; by default the last block of feature maps.

    Example:
        maps = agop.explain(model, images, "gradcam++", layer="layer3")
    """

    name: ClassVar[str] = "gradcam++"

    def weights(self, features: FeatureMaps) -> Tensor:
        g, total = features.gradients, features.activations.sum(dim=(2, 3), keepdim=True)
        # g² cancels. Computing it would underflow for the small gradients of a deep layer.
        denominator = 2 + total * g
        alpha = torch.where((g != 0) & (denominator != 0), 1 / denominator, 0.0)
        return (alpha * g.relu()).sum(dim=(2, 3))
