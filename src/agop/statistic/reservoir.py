"""Reservoir: a few of the training images, chosen by a hash of their values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from agop.errors import InputError

# Another salt chooses other images.
_SALT = b"agop references"


class Reservoir:
    """The `size` images with the smallest keys, each once. A key is a hash of the image in float32.

    So the choice is random, but depends neither on the order of the images nor on how they were split before merging.
    """

    def __init__(self, size: int) -> None:
        check_size(size)
        self.size = size
        self._by_key: dict[bytes, Tensor] = {}

    def update(self, images: Tensor) -> None:
        """Add images (N,C,H,W). Those that aren't finite are skipped."""
        images = images.detach().to("cpu", torch.float32)
        finite = images.flatten(1).isfinite().all(dim=1)
        # A copy: a row of a batch would keep the whole batch in memory.
        self._by_key |= {_key(image): image.clone() for image in images[finite]}
        self._by_key = {key: self._by_key[key] for key in sorted(self._by_key)[: self.size]}

    def images(self) -> Tensor | None:
        """The images (M,C,H,W) in float32, in the order of their keys. None if there are none."""
        return torch.stack(list(self._by_key.values())) if self._by_key else None

    def merge(self, other: Reservoir) -> Reservoir:
        """A new reservoir of the images of both."""
        if self.size != other.size:
            raise InputError(f"can't merge references={self.size} and references={other.size}: use the same number")
        return Reservoir.of(self.size, [self.images(), other.images()])

    def gathered(self, world_size: int) -> Reservoir:
        """A new reservoir of the images of all ranks. A collective call."""
        parts: list[Any] = [None] * world_size
        dist.all_gather_object(parts, self.images())
        return Reservoir.of(self.size, parts)

    @classmethod
    def of(cls, size: int, parts: Iterable[Tensor | None]) -> Reservoir:
        """The reservoir of all images in these parts."""
        reservoir = cls(size)
        for images in parts:
            if images is not None:
                reservoir.update(images)
        return reservoir


def check_size(references: Any) -> None:
    """Raise unless the number of images is a positive integer."""
    if not isinstance(references, int) or isinstance(references, bool) or references < 1:
        raise InputError(
            f"references is {references!r}: give the number of training images to keep, for example 64, or 0 for none"
        )


def _key(image: Tensor) -> bytes:
    return hashlib.blake2b(image.contiguous().numpy().data, digest_size=8, salt=_SALT).digest()
