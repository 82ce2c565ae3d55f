"""Controls: maps that don't use the model, or its first layer only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.errors import LayerError
from agop.methods.agop import patch_maps
from agop.methods.base import Job, Method, edges, filtered, sum_channels
from agop.model.layers import Layer, first_convolution, layer_candidates, named_layer

_LAPLACE = torch.tensor([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]])
# Standard deviation of the blob, relative to the image's side.
_BLOB = 0.25


@dataclass(frozen=True)
class Random(Method):
    """Uniform noise, a baseline.

    Args:
        seed: Seed of the noise.

    Example:
        maps = agop.explain(model, images, "random:seed=3")
    """

    name: ClassVar[str] = "random"
    needs_model: ClassVar[bool] = False
    seed: int = 0

    def maps(self, job: Job) -> Tensor:
        samples, _, *sides = job.images.shape
        generator = torch.Generator("cpu").manual_seed(self.seed)
        return torch.rand(samples, *sides, generator=generator, device="cpu")


@dataclass(frozen=True)
class Input(Method):
    """The absolute image: Σ_channels |x|. A control.

    Example:
        maps = agop.explain(model, images, "input")
    """

    name: ClassVar[str] = "input"
    needs_model: ClassVar[bool] = False

    def maps(self, job: Job) -> Tensor:
        return sum_channels(job.images)


@dataclass(frozen=True)
class Sobel(Method):
    """Edge strength: Σ_channels of the Sobel filter's gradient norm. A control.

    Example:
        maps = agop.explain(model, images, "sobel")
    """

    name: ClassVar[str] = "sobel"
    needs_images: ClassVar[bool] = True
    needs_model: ClassVar[bool] = False

    def maps(self, job: Job) -> Tensor:
        return edges(job.images)


@dataclass(frozen=True)
class Laplace(Method):
    """Second derivative: Σ_channels |Laplace filter|. A control.

    Example:
        maps = agop.explain(model, images, "laplace")
    """

    name: ClassVar[str] = "laplace"
    needs_images: ClassVar[bool] = True
    needs_model: ClassVar[bool] = False

    def maps(self, job: Job) -> Tensor:
        return sum_channels(filtered(job.images, _LAPLACE))


@dataclass(frozen=True)
class ActivationNorm(Method):
    """Norm of the first convolution's outputs, averaged over the patches that contain the pixel. A control.

    It is the map of agop-patch with the identity instead of the patch matrix, and without the prior: it depends on the
    weights of one layer, and on neither the class nor the rest of the model.

    Args:
        layer: Another layer, by name or module.

    Raises:
        LayerError: In `explain`, if the model has no convolution and no layer is passed.

    Example:
        maps = agop.explain(model, images, "activation-norm")
    """

    name: ClassVar[str] = "activation-norm"
    needs_images: ClassVar[bool] = True
    uses_first_layer: ClassVar[bool] = True
    layer: Layer = None

    def maps(self, job: Job) -> Tensor:
        model = job.probe.model
        layer = first_convolution(job.probe, job.images[:1]) if self.layer is None else self.layer
        if layer is None:
            raise LayerError(
                f"{self.name}: the model has no convolution: name a layer that returns maps or tokens, "
                f"{self.name}:layer=NAME; {layer_candidates(model)}"
            )
        return patch_maps(job.probe, job.images, named_layer(model, layer)[1])


@dataclass(frozen=True)
class FixedMap(Method):
    """One map (H,W) for every image."""

    needs_model: ClassVar[bool] = False
    name: str  # type: ignore[misc]  # a field of the instance: the class itself isn't registered
    map: Tensor

    def maps(self, job: Job) -> Tensor:
        """Maps (N,H,W): the same one for each image."""
        return self.map.expand(len(job.images), -1, -1)


def _centre(masks: Tensor) -> FixedMap:
    """A Gaussian blob in the middle, of the size of the masks (N,H,W)."""
    rows, columns = ((torch.arange(side) + 0.5) / side - 0.5 for side in masks.shape[1:])
    return FixedMap("centre", torch.exp(-(rows[:, None] ** 2 + columns**2) / (2 * _BLOB**2)))


# Control → its map, from the masks (N,H,W) of a bench's training data, or of the evaluated images.
FIXED_MAPS: dict[str, Callable[[Tensor], FixedMap]] = {
    "centre": _centre,
    "mean-mask": lambda masks: FixedMap("mean-mask", masks.cpu().double().mean(dim=0).float()),
}
