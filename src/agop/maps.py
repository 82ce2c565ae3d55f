"""Maps: what explain() gives. A tensor in everything, and in a notebook a picture."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from agop.saliency import Picture, pixels
from agop.sheets import enlarged, shown, side_by_side, stacked

_FEW, _SIDE = 6, 256
_GREY = 200


@dataclass(frozen=True)
class Source:
    """What a picture of maps needs: the first few images (n,C,h,w), the method, and the classes explained.

    `targets` is None for the predicted classes, and "" for a method that knows no class.
    """

    images: Tensor
    method: str
    targets: Tensor | Literal[""] | None


class Maps(Tensor):
    """Maps (N,H,W), non-negative. What is computed from them is a plain tensor, and so is a copy or what a file holds.

    Only what gives the tensor itself back, such as cpu() on the CPU or an operation in place, and detach() stay Maps.
    """

    _source: Source | None = None
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # as nn.Parameter has it

    @staticmethod
    def of(maps: Tensor, images: Tensor, method: str, targets: Tensor | Literal[""] | None) -> Tensor:
        """The maps (N,H,W) with a copy of the first few of their images (N,C,H,W), thinned out if they are large."""
        # as_subclass makes a view, which autograd guards; a fresh tensor is wanted, but not at the cost of a graph.
        made = maps.as_subclass(Maps) if maps.requires_grad else Tensor._make_subclass(Maps, maps)
        every = -(-max(images.shape[2:]) // _SIDE)
        few = images.detach()[:_FEW, :, ::every, ::every].clone()
        kept = targets[:_FEW].clone() if isinstance(targets, Tensor) else targets
        made._source = Source(few, method, kept)
        return made

    def detach(self) -> Tensor:
        """The maps without a graph, of this class: nn.Parameter insists on it."""
        if torch.compiler.is_compiling():
            return super().detach()
        return Tensor._make_subclass(Maps, self)

    def _repr_png_(self) -> bytes | None:
        """The first few images and their maps, for a notebook; None if it is not a batch of maps any more."""
        known = self._source
        if known is None or self.ndim != 3 or len(self) < len(known.images):
            return None
        buffer = io.BytesIO()
        _drawn(known, self.as_subclass(Tensor)).save(buffer, format="PNG")
        return buffer.getvalue()

    def _plain(self) -> Any:
        if getattr(self, "_is_param", False):
            return nn.Parameter(self.as_subclass(Tensor), self.requires_grad)
        if self.grad_fn is not None:
            return self.as_subclass(Tensor)
        return Tensor._make_subclass(Tensor, self, self.requires_grad)

    def __repr__(self) -> str:  # type: ignore[override]  # torch's own has a keyword for wrappers
        return repr(self._plain())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._plain().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return memo.setdefault(id(self), self._plain().__deepcopy__(memo))


def _drawn(known: Source, maps: Tensor) -> Image.Image:
    """The images in a row, their maps below."""
    few = maps[: len(known.images)].detach().double()
    height, width = known.images.shape[2:]
    saliencies = adaptive_avg_pool2d(few[:, None], (height, width))[:, 0].cpu().numpy()
    above = [(caption, enlarged(picture)) for caption, picture in _captioned(known, len(maps))]
    below = [
        _panel(known.method, picture, saliency)
        for (_, picture), saliency in zip(_captioned(known, len(maps)), saliencies, strict=True)
    ]
    return stacked([side_by_side(above), side_by_side(below)])


def _captioned(known: Source, count: int) -> Iterator[tuple[str, Picture]]:
    told = ["" if known.targets == "" else ", predicted class"] * len(known.images)
    if isinstance(known.targets, Tensor):
        told = [f", class {target}" for target in known.targets.tolist()]
    for place, (image, target) in enumerate(zip(known.images, told, strict=True)):
        yield f"{place + 1} of {count}{target}", pixels(image[None])[0]


def _panel(method: str, picture: Picture, saliency: NDArray[np.float64]) -> tuple[str, Image.Image]:
    if not np.isfinite(saliency).all():
        return f"{method} (not finite)", enlarged(np.full_like(picture, _GREY))
    return method if saliency.any() else f"{method} (all zero)", shown(picture, saliency)
