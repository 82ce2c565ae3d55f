"""Colour images as a network's input, normalised by ImageNet's mean and standard deviation."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agop.pictures.preprocessing import IMAGENET, Preprocessing

# Values of black and white in each channel.
BLACK, WHITE = Preprocessing(**IMAGENET).extremes  # type: ignore[arg-type]  # mean and std


def normalised(images: NDArray[np.uint8]) -> Tensor:
    """Images (N,3,S,S), normalised, from bytes (N,S,S,3)."""
    mean, std = (torch.tensor(IMAGENET[name]).view(1, 3, 1, 1) for name in ("mean", "std"))
    return (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - mean) / std
