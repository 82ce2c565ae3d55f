"""What GradCAM and its kin share: weigh the feature maps of one layer."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from agop.gradients import Probe
from agop.layers import FeatureMaps, Layer, feature_maps, layer_for
from agop.methods.base import Job, Method
from agop.saliency import wide


@dataclass(frozen=True)
class LayerMethod(Method):
    """ReLU(Σ_k w_k · A_k) of a layer's feature maps A (N,D,h,w), bilinearly at the image's size.

    The layer is given by name or as a module; else it is the last convolution with a map larger than 1×1.
    """

    layer: Layer = None

    def prepared(self, probe: Probe, image: Tensor) -> LayerMethod:
        return replace(self, layer=layer_for(probe, image, self.layer))

    def maps(self, probe: Probe, job: Job) -> Tensor:
        layer = self.layer
        assert isinstance(layer, nn.Module)  # `prepared` has found it
        features = feature_maps(probe, job.images, job.targets, layer)
        coarse = torch.einsum("nd,ndhw->nhw", self.weights(features), features.activations).relu()
        coarse = coarse.to(wide(coarse.dtype))
        size = job.images.shape[-2:]
        return functional.interpolate(coarse[:, None], size, mode="bilinear", align_corners=False)[:, 0]

    @abstractmethod
    def weights(self, features: FeatureMaps) -> Tensor:
        """The weight (N,D) of each feature map."""
