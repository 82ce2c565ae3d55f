"""GradCAM++: a layer's feature maps, weighted by their positive gradients, with a weight per pixel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.methods.layer_method import LayerMethod
from agop.model.layers import FeatureMaps


@dataclass(frozen=True)
class GradCAMPlusPlus(LayerMethod):
    """Feature maps weighted by their positive gradients, with a weight per pixel.

    w_k = Σ_ij α_ij · ReLU(g_ij) with α_ij = g_ij² / (2 g_ij² + Σ_ab A_ab · g_ij³), 0 where g_ij = 0.
    """

    name: ClassVar[str] = "gradcam++"

    def weights(self, features: FeatureMaps) -> Tensor:
        g, total = features.gradients, features.activations.sum(dim=(2, 3), keepdim=True)
        # g² cancels. Computing it would underflow for the small gradients of a deep layer.
        denominator = 2 + total * g
        alpha = torch.where((g != 0) & (denominator != 0), 1 / denominator, 0.0)
        return (alpha * g.relu()).sum(dim=(2, 3))
