"""The paper's samples as arrays, whether official or drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agop.clevr.masks import Mask, resized
from agop.clevr.release import read_release
from agop.errors import FileError
from agop.progress import track

KINDS = ("all_objects", "single_object", "dominant")


@dataclass(frozen=True)
class Pictures:
    """Pictures (N,S,S,3), labels (N,) 0 metal or 1 rubber, numbers of scenes (N,), masks (N,S,S) by kind."""

    pictures: NDArray[np.uint8]
    labels: NDArray[np.int64]
    scenes: NDArray[np.int64]
    masks: dict[str, Mask]


def official(folder: Path, size: int, report: Callable[[str], None] = lambda line: None) -> Pictures:
    """The samples of an official release that have all kinds of masks, at the benchmark's own resizing rule."""
    release = read_release(folder, report)
    report(release.summary())
    pictures, labels, scenes = [], [], []
    masks: dict[str, list[Mask]] = {kind: [] for kind in KINDS}
    for sample in track(release.samples, "reading pictures"):
        found = release.masks(sample)
        if any(kind not in found for kind in KINDS):
            continue
        pictures.append(release.picture(sample, size))
        labels.append(sample.label)
        scenes.append(sample.image_index)
        for kind, kept in masks.items():
            kept.append(resized(found[kind], size))
    if not pictures:
        raise FileError(f"{folder} has no sample with mask pictures, which tell the dominant objects: get them, too")
    return Pictures(np.stack(pictures), np.array(labels), np.array(scenes), {k: np.stack(m) for k, m in masks.items()})
