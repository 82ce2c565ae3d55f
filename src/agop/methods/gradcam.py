"""GradCAM: a layer's feature maps, each weighted by its mean gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from agop.methods.layer_method import LayerMethod, mean_gradient
from agop.model.layers import FeatureMaps


@dataclass(frozen=True)
class GradCAM(LayerMethod):
    """Feature maps weighted by their mean gradient: w_k = mean of ∂f/∂A_k."""

    name: ClassVar[str] = "gradcam"

    def weights(self, features: FeatureMaps) -> Tensor:
        return mean_gradient(features)
