"""The extent of a pattern: the model may need a part of it only."""

from __future__ import annotations

import torch
from torch import Tensor

from agop.auditing.regions import Box, box_of, connected, grown

# A pixel belongs to the pattern if its mean differs by this many standard deviations of the images that contain it.
_STANDARD_DEVIATIONS = 2.0
# Share of the mean variance that is added to a pixel's, so that constant pixels aren't infinitely certain.
_FLOOR = 0.01
# The box of a region has at most this share of the image.
LARGEST_SHARE = 0.1


def extent(containing: Tensor, others: Tensor, core: Box) -> Box | None:
    """The box around the pixels that are alike in images (M,C,H,W) with the pattern, and unlike other images (N,C,H,W).

    Only pixels that are connected with the core count. None if there are none, or if their box is more than a tenth of
    the image.
    """
    variance = containing.double().var(dim=0, unbiased=False)
    whole = others.double()
    floor = _FLOOR * whole.var(dim=0, unbiased=False).mean() + 1e-12
    distance = (containing.double().mean(dim=0) - whole.mean(dim=0)).square() / (variance + floor)
    unlike = distance.amax(dim=0) > _STANDARD_DEVIATIONS**2
    reach = max(1, min(unlike.shape) // 32)
    inside = core.region((unlike.shape[0], unlike.shape[1]))
    # Pixels of a pattern may equal the background: a gap of two pixels joins its parts.
    parts = [part & unlike for part in connected(grown(unlike, reach)) if bool((part & unlike & inside).any())]
    joined = torch.stack(parts).any(dim=0) if parts else torch.zeros_like(unlike)
    if not joined.any():
        return None
    box = box_of(joined)
    return box if box.height * box.width <= LARGEST_SHARE * unlike.numel() and min(box.height, box.width) > 1 else None
