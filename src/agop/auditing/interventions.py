"""Interventions: changes of images in one respect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, normalize, pad

from agop.errors import InputError


@dataclass(frozen=True, eq=False)
class Intervention(ABC):
    """Changes images in one respect. The fields of the class are its configuration.

    Hosts (N,C,H,W) are images of other classes, donors (N,C,H,W) images of the class, paired by position.
    """

    # True if the donors are changed instead of the hosts: something of the class is taken away.
    removes: ClassVar[bool] = False

    @abstractmethod
    def changed(self, hosts: Tensor, donors: Tensor) -> Tensor:
        """The changed images (N,C,H,W): the hosts with something of their donors, or the reverse if it removes."""

    def of(self, pairs: slice) -> Intervention:
        """The same for a part of the pairs of hosts and donors."""
        return self

    def statistics(self, images: Tensor) -> Tensor:
        """Numbers (N,F) that describe what is taken from images (N,C,H,W); by default none."""
        return images.new_zeros(len(images), 0)


# The range of a constant channel. Also added to variances before the logarithm: a frame of one colour has none.
_CONSTANT = 1e-6


@dataclass(frozen=True, eq=False)
class Border(Intervention):
    """Give other images the frame of images of the class, `width` pixels wide."""

    width: int

    def region(self, height: int, width: int) -> Tensor:
        """The frame (H,W)."""
        if min(height, width) <= 2 * self.width:
            raise InputError(f"a frame of {self.width} px doesn't fit into {height}×{width} px: give a smaller width")
        frame = torch.ones(height, width, dtype=torch.bool)
        frame[self.width : -self.width, self.width : -self.width] = False
        return frame

    def changed(self, hosts: Tensor, donors: Tensor) -> Tensor:
        return torch.where(self.region(*hosts.shape[2:]).to(hosts.device), donors, hosts)

    def statistics(self, images: Tensor) -> Tensor:
        """Mean and logarithm of the variance of the frame, for each channel."""
        frame = images[:, :, self.region(*images.shape[2:])]
        return torch.cat([frame.mean(dim=2), (frame.var(dim=2) + _CONSTANT).log()], dim=1)


# Share of a channel's pixels below its darkest level, and above its brightest.
_ENDS = 0.005
# Levels of a channel that describe its colour and contrast.
_LEVELS = (_ENDS, 0.05, 0.5, 0.95, 1 - _ENDS)


@dataclass(frozen=True, eq=False)
class Colour(Intervention):
    """Give other images the darkest and the brightest level of each channel of images of the class."""

    def changed(self, hosts: Tensor, donors: Tensor) -> Tensor:
        (low, high), (new_low, new_high) = (_levels(images, (_ENDS, 1 - _ENDS)) for images in (hosts, donors))
        contrast = high - low
        scale = torch.where(contrast < _CONSTANT, 1, (new_high - new_low) / contrast.clamp_min(_CONSTANT))
        return (hosts - low[:, :, None, None]) * scale[:, :, None, None] + new_low[:, :, None, None]

    def statistics(self, images: Tensor) -> Tensor:
        """Levels of each channel, and their differences between channels: a cast shifts black and white points."""
        levels = torch.stack(_levels(images, _LEVELS), dim=2)  # (N,C,L)
        channels = range(images.shape[1])
        differences = [levels[:, a] - levels[:, b] for a in channels for b in channels if a < b]
        return torch.cat([levels.flatten(1), *differences], dim=1)


def _levels(images: Tensor, shares: tuple[float, ...]) -> tuple[Tensor, ...]:
    """Values (N,C) below which these shares of a channel's pixels are."""
    values = images.flatten(2).sort(dim=2).values
    count = values.shape[2]
    return tuple(values[:, :, min(count - 1, int(share * count))] for share in shares)


# Pixels per side from which coefficients are computed.
_LARGEST = 64


@dataclass(frozen=True, eq=False)
class HighFrequency(Intervention):
    """Give other images the high-frequency band of images of the class.

    The band has all frequencies of at least `lowest` cycles per pixel in one direction; 0.5 is the highest frequency.
    """

    lowest: float = 0.25

    def band(self, height: int, width: int) -> Tensor:
        """True (H,W//2+1) for the coefficients of torch.fft.rfft2 that are swapped."""
        rows, columns = torch.fft.fftfreq(height).abs()[:, None], torch.fft.rfftfreq(width)
        band: Tensor = (rows >= self.lowest) | (columns >= self.lowest)
        return band

    def changed(self, hosts: Tensor, donors: Tensor) -> Tensor:
        band = self.band(*hosts.shape[2:]).to(hosts.device)
        spectrum = torch.where(band, torch.fft.rfft2(donors), torch.fft.rfft2(hosts))
        changed: Tensor = torch.fft.irfft2(spectrum, s=hosts.shape[2:])
        return changed

    def statistics(self, images: Tensor) -> Tensor:
        """Coefficients of the band, of the mean over the channels, in the middle of large images."""
        height, width = (min(length, _LARGEST) for length in images.shape[2:])
        top, left = (images.shape[2] - height) // 2, (images.shape[3] - width) // 2
        gray = images[:, :, top : top + height, left : left + width].mean(dim=1)
        spectrum = torch.fft.rfft2(gray)[:, self.band(height, width)]
        return torch.cat([spectrum.real, spectrum.imag], dim=1)


@dataclass(frozen=True, eq=False)
class Remove(Intervention):
    """Fill a region (H,W) of images of the class with the pixels of other images at that place."""

    removes: ClassVar[bool] = True
    region: Tensor

    def changed(self, hosts: Tensor, donors: Tensor) -> Tensor:
        return torch.where(self.region.to(donors.device), hosts, donors)


# A smaller norm of the fine structure is rounding: the region is flat.
FLAT = 1e-4


@dataclass(frozen=True, eq=False)
class Transplant(Intervention):
    """Paste a region (H,W) of images of the class into other images at the same place."""

    region: Tensor

    def changed(self, hosts: Tensor, donors: Tensor) -> Tensor:
        return torch.where(self.region.to(hosts.device), donors, hosts)

    def statistics(self, images: Tensor) -> Tensor:
        """The fine structure of the region, with norm 1.

        So a sum of them is a correlation with a pattern. Its amplitude doesn't count: translucent text is strong on a
        dark background and faint on a bright one.
        """
        return normalize(fine_structure(images)[:, :, self.region].flatten(1), dim=1, eps=FLAT)


def fine_structure(images: Tensor) -> Tensor:
    """Each pixel of images (N,C,H,W) minus the mean of 3×3 pixels."""
    return images - avg_pool2d(pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1)


@dataclass(frozen=True, eq=False)
class TransplantElsewhere(Intervention):
    """Paste a square patch of each image of the class into another image at a random place.

    `corners` (N,2) are the top left corners of the patches in the donors. The seed chooses the places, unless `shares`
    (N,2) says how far down and right they are, in 0..1.
    """

    corners: Tensor
    side: int
    seed: int = 0
    shares: Tensor | None = None

    def of(self, pairs: slice) -> TransplantElsewhere:
        return replace(self, corners=self.corners[pairs], shares=self._shares(len(self.corners))[pairs])

    def _shares(self, count: int) -> Tensor:
        if self.shares is not None:
            return self.shares
        return torch.rand(count, 2, generator=torch.Generator().manual_seed(self.seed))

    def places(self, count: int, height: int, width: int) -> Tensor:
        """Top left corners (N,2) of the places in the hosts."""
        return (self._shares(count) * torch.tensor([height - self.side + 1, width - self.side + 1])).long()

    def changed(self, hosts: Tensor, donors: Tensor) -> Tensor:
        count, _, height, width = hosts.shape
        result = hosts.clone()
        places = patch_index(self.places(count, height, width), self.side)
        result[places] = donors[patch_index(self.corners, self.side)]
        return result


def patch_index(corners: Tensor, side: int) -> tuple[Tensor | slice, ...]:
    """The index in images (N,C,H,W) of square patches (N,side,side,C) at corners (N,2)."""
    steps = torch.arange(side)
    rows, columns = corners[:, :1, None] + steps[:, None], corners[:, 1:, None] + steps
    return torch.arange(len(corners))[:, None, None], slice(None), rows, columns
