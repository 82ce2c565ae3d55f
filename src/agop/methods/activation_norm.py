"""Activation norm: how strongly the model's first layer responds, a control that doesn't use gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from agop.errors import LayerError
from agop.methods.base import Job, Method
from agop.model.feature_grid import CONVOLUTIONS, as_grid, prefix_tokens
from agop.model.first_layer import first_layer, mean_over_patches
from agop.model.layers import Layer, layer_candidates, named_layer, output_of
from agop.model.probe import at_least_float32


@dataclass(frozen=True)
class ActivationNorm(Method):
    """Norm of the first convolution's outputs, averaged over the patches that contain the pixel. A control.

    It depends on the weights of one layer, and on neither the class nor the rest of the model. The norms of another
    `layer`, a name or a module, are upsampled bilinearly.
    """

    name: ClassVar[str] = "activation-norm"
    uses_first_layer: ClassVar[bool] = True
    layer: Layer = None

    def maps(self, job: Job) -> Tensor:
        probe, size = job.probe, job.images.shape[-2:]
        first = first_layer(probe, job.images[:1])
        layer = self._layer(probe.model, first)
        outputs = torch.cat([output_of(probe, part, layer) for part in probe.parts(job.images)])
        maps = as_grid(
            outputs, len(job.images), size, prefix_tokens(probe.model), channels_first=isinstance(layer, CONVOLUTIONS)
        )
        norms = torch.linalg.vector_norm(maps.to(at_least_float32(maps.dtype)), dim=1)
        if first is not None and layer is first:
            return mean_over_patches(norms, first, size)
        return functional.interpolate(norms[:, None], size, mode="bilinear", align_corners=False)[:, 0]

    def _layer(self, model: nn.Module, first: nn.Module | None) -> nn.Module:
        if self.layer is not None:
            return named_layer(model, self.layer)[1]
        if first is None:
            raise LayerError(
                f"{self.name}: the model has no convolution that reads the image: name a layer with a spatial output, "
                f"{self.name}:layer=NAME; {layer_candidates(model)}"
            )
        return first
