"""show(): the first few images of a batch with their maps below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from agop.errors import InputError
from agop.pictures.colouring import Colouring
from agop.pictures.heat import Picture
from agop.plot.comparison import draw_maps
from agop.plot.figures import draw_panel, scale_bar
from agop.plot.grids import grid
from agop.plot.inputs import Map, map_of, picture_of

_FEW, _SIDE = 6, 256


def show(
    images: Any,
    maps: Any,
    *,
    targets: Sequence[Any] | Tensor | None = None,
    title: str = "map",
    scale: str = "own",
    percentile: float = 98.0,
    opacity: float = 1.0,
    colours: str = "inferno",
) -> Figure:
    """Figure of the first six images (N,C,H,W) in a row, their maps (N,H,W) below.

    `targets` are the explained classes (N,), as numbers or names, for the captions; `title` labels the maps' row.
    `scale`, `percentile`, `opacity` and `colours` are as in `compare`. Images may also be arrays (N,H,W,3) or PIL
    images.
    """
    colouring = Colouring(scale, percentile, opacity, colours)
    total = len(images)
    if total == 0:
        raise InputError("0 images: pass at least one")
    for name, values in (("maps", maps), ("targets", targets)):
        if values is not None and len(values) != total:
            raise InputError(f"{total} images and {len(values)} {name}: pass one per image")
    count = min(total, _FEW)
    pictures = [picture_of(images[index]) for index in range(count)]
    small = [_thinned(picture, map_of(maps[index], picture)) for index, picture in enumerate(pictures)]
    height, width = pictures[0].shape[:2]
    figure, panels, bar = grid(height / width, _captions(count, total, targets), ["image", title])
    thin, saliencies = zip(*small, strict=True)
    for axes, picture in zip(panels[0], thin, strict=True):
        draw_panel(axes, picture)
    top = draw_maps(panels[1:], {title: saliencies}, [None] * count, colouring, thin)
    scale_bar(panels[1], colouring, top, bar)
    return figure


def _captions(count: int, total: int, targets: Sequence[Any] | Tensor | None) -> list[str]:
    captions = [f"{index + 1} of {total}" for index in range(count)]
    if targets is None:
        return captions
    classes = targets.tolist() if isinstance(targets, Tensor) else targets
    names = [name if isinstance(name, str) else f"class {name}" for name in classes[:count]]
    return [f"{caption}, {name}" for caption, name in zip(captions, names, strict=True)]


def _thinned(picture: Picture, saliency: Map) -> tuple[Picture, Map]:
    """The picture (H,W,3) and map (H,W) with at most 256 pixels per side: a figure of large images would be huge."""
    every = -(-max(saliency.shape) // _SIDE)
    small = picture[::every, ::every]
    height, width = small.shape[:2]
    return small, adaptive_avg_pool2d(torch.from_numpy(saliency)[None], (height, width))[0].numpy()
