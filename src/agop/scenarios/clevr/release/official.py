"""The paper's samples as arrays, whether official or drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agop.scenarios.clevr.release.masks import Mask, resized
from agop.scenarios.clevr.release.reader import read_release
from agop.system.progress import track


@dataclass(frozen=True)
class Pictures:
    """Pictures (N,S,S,3), labels (N,) 0 metal or 1 rubber, numbers of scenes (N,), masks (N,S,S) by kind."""

    pictures: NDArray[np.uint8]
    labels: NDArray[np.int64]
    scenes: NDArray[np.int64]
    masks: dict[str, Mask]


def official(folder: Path, size: int, samples: int | None = None) -> Pictures:
    """The samples of an official release, the first so many if told, masks resized by `resized`.

    Without any mask picture there is no kind "dominant"; if only some have one, the others are left out, as
    `Release.summary` says.
    """
    release = read_release(folder)
    kept, masks = [], []
    for sample in track(release.samples, "reading masks"):
        found = release.masks(sample)
        if all(kind in found for kind in release.kinds):
            kept.append(sample)
            masks.append([resized(found[kind], size) for kind in release.kinds])
        if len(kept) == samples:
            break
    shown = np.stack([np.stack(of_one) for of_one in masks], axis=1)
    _, scenes = np.unique([sample.image_filename for sample in kept], return_inverse=True)
    return Pictures(
        np.stack([release.picture(sample, size) for sample in track(kept, "reading pictures")]),
        np.array([sample.label for sample in kept]),
        scenes,
        dict(zip(release.kinds, shown, strict=True)),
    )
