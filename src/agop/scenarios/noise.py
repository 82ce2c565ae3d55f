"""Pink noise: a stand-in for photographs, with their falling spectrum but without objects."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Images per Fourier transform: complex numbers of all images at once would need several times the memory.
_BATCH = 1000


def pink_noise(count: int, size: int, random: np.random.Generator) -> NDArray[np.float32]:
    """Noise (count,size,size) whose amplitude falls with 1/f. Each image has mean 0 and standard deviation 1."""
    frequencies = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)).astype(np.float32)
    frequencies[0, 0] = np.inf  # mean 0
    noise = np.empty((count, size, size), np.float32)
    for start in range(0, count, _BATCH):
        white = random.standard_normal((min(_BATCH, count - start), size, size), dtype=np.float32)
        pink = np.fft.irfft2(np.fft.rfft2(white) / frequencies, s=(size, size))
        noise[start : start + _BATCH] = pink / pink.std(axis=(1, 2), keepdims=True)
    return noise
