"""High frequency: the finest structure of an image, swapped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from agop.interventions.base import Intervention

# Pixels per side from which coefficients are computed.
_LARGEST = 64


@dataclass(frozen=True, eq=False)
class HighFrequency(Intervention):
    """Give other images the high-frequency band of images of the class.

    The band has all frequencies of at least `lowest` cycles per pixel in one direction; 0.5 is the highest frequency.
    """

    name: ClassVar[str] = "high-frequency"
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
