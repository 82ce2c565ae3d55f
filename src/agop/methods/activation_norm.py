"""Activation norm: how strongly the model's first layer responds, a control that doesn't use gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from agop.errors import LayerError
from agop.methods.base import Job, Method
from agop.methods.patches import patch_maps
from agop.model.layers import Layer, layer_candidates, named_layer
from agop.model.patch_layer import first_convolution


@dataclass(frozen=True)
class ActivationNorm(Method):
    """Norm of the first convolution's outputs, averaged over the patches that contain the pixel. A control.

    It is the map of agop-patch with the identity instead of the patch matrix, and without the prior: it depends on the
    weights of one layer, and on neither the class nor the rest of the model. `layer` is another one, by name or module.
    """

    name: ClassVar[str] = "activation-norm"
    uses_first_layer: ClassVar[bool] = True
    layer: Layer = None

    def maps(self, job: Job) -> Tensor:
        return patch_maps(job.probe, job.images, self._layer(job))

    def _layer(self, job: Job) -> nn.Module:
        model = job.probe.model
        if self.layer is not None:
            return named_layer(model, self.layer)[1]
        layer = first_convolution(job.probe, job.images[:1])
        if layer is None:
            raise LayerError(
                f"{self.name}: the model has no convolution: name a layer that returns maps or tokens, "
                f"{self.name}:layer=NAME; {layer_candidates(model)}"
            )
        return layer
