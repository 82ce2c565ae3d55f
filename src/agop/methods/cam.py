"""Maps of one layer's activations and gradients: GradCAM, GradCAM++, LayerCAM and NormGrad."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn import functional

from agop.methods.base import Job, Method
from agop.model.layers import FeatureMaps, Layer, feature_maps, fine_layer, layer_for


def upsampled(coarse: Tensor, images: Tensor) -> Tensor:
    """Maps (N,H,W) of the images' size, scaled bilinearly from maps (N,h,w)."""
    return functional.interpolate(coarse[:, None], images.shape[-2:], mode="bilinear", align_corners=False)[:, 0]


@dataclass(frozen=True)
class GradCAM(Method):
    """Feature maps weighted by their mean gradient: w_k = mean of ∂f/∂A_k.

    The map is ReLU(Σ_k w_k · A_k), scaled bilinearly to the image size.
    Selvaraju et al., "Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization", 2017.

    Args:
        layer: The layer, by name or module; by default the last block of feature maps.

    Example:
        maps = agop.explain(model, images, "gradcam", layer="layer3")
    """

    name: ClassVar[str] = "gradcam"
    needs_images: ClassVar[bool] = True
    layer: Layer = None

    def prepared(self, job: Job) -> GradCAM:
        return replace(self, layer=layer_for(job.probe, job.images[:1], self.layer))

    def maps(self, job: Job) -> Tensor:
        features = feature_maps(job.probe, job.images, job.targets, self.layer)
        return upsampled(self.coarse(features), job.images)

    def coarse(self, features: FeatureMaps) -> Tensor:
        """Maps (N,h,w) of the layer's size."""
        return torch.einsum("nd,ndhw->nhw", self.weights(features), features.activations).relu()

    def weights(self, features: FeatureMaps) -> Tensor:
        """Weights (N,D) of the feature maps."""
        return features.gradients.mean(dim=(2, 3))


@dataclass(frozen=True)
class GradCAMPlusPlus(GradCAM):
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


@dataclass(frozen=True)
class LayerCAM(GradCAM):
    """Feature maps weighted by their own positive gradients: ReLU(Σ_k ReLU(g_k) · A_k).

    Jiang et al., "LayerCAM: Exploring Hierarchical Class Activation Maps for Localization", 2021.

    Args:
        layer: The layer, by name or module; by default the last block of feature maps.

    Example:
        maps = agop.explain(model, images, "layercam", layer="layer3")
    """

    name: ClassVar[str] = "layercam"

    def coarse(self, features: FeatureMaps) -> Tensor:
        return (features.gradients.relu() * features.activations).sum(dim=1).relu()


@dataclass(frozen=True)
class NormGrad(GradCAM):
    """Norm of the gradient times norm of the activation at each position of a layer: ‖δ_p‖ · ‖a_p‖.

    Rebuffi et al., "There and Back Again: Revisiting Backpropagation Saliency Methods", 2020.

    Args:
        layer: The layer, by name or module; by default the block before the last one with a map of at least 14×14 at
            a stride of at least 8, else the last block of feature maps.

    Example:
        maps = agop.explain(model, images, "normgrad")
    """

    name: ClassVar[str] = "normgrad"

    def prepared(self, job: Job) -> NormGrad:
        image = job.images[:1]
        layer = fine_layer(job.probe, image) if self.layer is None else self.layer
        return replace(self, layer=layer_for(job.probe, image, layer))

    def coarse(self, features: FeatureMaps) -> Tensor:
        gradients, activations = (vector_norm(part, dim=1) for part in features)
        return torch.mul(gradients, activations)
