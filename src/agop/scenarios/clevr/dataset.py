"""The task's samples as arrays: read from the official release, or drawn offline and cached."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agop.errors import InputError
from agop.scenarios.clevr.cache import cache_folder, is_cached, read_chunk, write_chunk
from agop.scenarios.clevr.release.masks import RELEASED, Mask, resized
from agop.scenarios.clevr.release.samples import read_release
from agop.scenarios.clevr.render.images import object_masks, render
from agop.scenarios.clevr.render.objects import SceneObject
from agop.scenarios.clevr.render.scene import Scene, random_scene, scene_objects
from agop.scenarios.clevr.task import KINDS, Sample, sample_about
from agop.system.progress import track
from agop.system.workers import run_each

# Increase whenever the drawn images change: cached ones of other versions aren't used.
_VERSION = 1
_CHUNK = 20
# Sample n uses the first suitable scene of n, n + stride, n + 2·stride …, so no scene is used twice.
_STRIDE = 10_000_000


@dataclass(frozen=True)
class Dataset:
    """Images (N,S,S,3), labels (N,) 0 metal or 1 rubber, scene numbers (N,), masks (N,S,S) by kind."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    scenes: NDArray[np.int64]
    masks: dict[str, Mask]


def official_dataset(folder: Path, size: int, samples: int | None = None) -> Dataset:
    """The first samples of an official release, all by default. Masks are resized by `resized`.

    Without any mask image there's no kind "dominant". If only some samples lack one, they are skipped, as
    `Release.summary` reports.
    """
    release = read_release(folder)
    used, masks = [], []
    for sample in track(release.samples, "reading masks"):
        by_kind = release.masks(sample)
        if all(kind in by_kind for kind in release.kinds):
            used.append(sample)
            masks.append([resized(by_kind[kind], size) for kind in release.kinds])
        if len(used) == samples:
            break
    stacked = np.stack([np.stack(kinds) for kinds in masks], axis=1)
    _, scenes = np.unique([sample.image_filename for sample in used], return_inverse=True)
    return Dataset(
        np.stack([release.image(sample, size) for sample in track(used, "reading images")]),
        np.array([sample.label for sample in used]),
        scenes,
        dict(zip(release.kinds, stacked, strict=True)),
    )


def drawn_dataset(samples: int, size: int = 64, seed: int = 0, jobs: int = 1, cache: Path | None = None) -> Dataset:
    """The first samples of a seed. Missing ones are drawn and cached in chunks, so a killed run can be resumed."""
    if samples < 1:
        raise InputError(f"samples is {samples}: pass 1 or more")
    folder = (cache or cache_folder()) / "clevr" / f"v{_VERSION}-seed{seed}-{size}"
    chunks = range(-(-samples // _CHUNK))
    missing = [chunk for chunk in chunks if not is_cached(folder, chunk)]
    work = partial(_draw_chunk, folder, size, seed, _CHUNK)
    with closing(run_each(work, missing, jobs)) as drawn:
        for _ in track(drawn, "drawing scenes", total=len(missing), show=bool(missing)):
            pass
    parts = [read_chunk(folder, chunk) for chunk in chunks]
    joined = {name: np.concatenate([part[name] for part in parts])[:samples] for name in parts[0]}
    masks = np.unpackbits(joined["masks"], axis=-1).astype(bool).reshape(samples, len(KINDS), size, size)
    by_kind = {kind: masks[:, place] for place, kind in enumerate(KINDS)}
    return Dataset(joined["pictures"], joined["labels"], joined["scenes"], by_kind)


def _draw_chunk(folder: Path, size: int, seed: int, length: int, chunk: int) -> None:
    indices, samples = zip(*(drawn_sample(seed, chunk * length + place) for place in range(length)), strict=True)
    scenes = [random_scene(seed, index) for index in indices]
    masks = np.stack([drawn_masks(scene, sample, size) for scene, sample in zip(scenes, samples, strict=True)])
    arrays = {
        "pictures": np.stack([render(scene, size, size) for scene in scenes]),
        "labels": np.array([sample.label for sample in samples]),
        "scenes": np.array(indices),
        "masks": np.packbits(masks.reshape(*masks.shape[:2], -1), axis=-1),
    }
    write_chunk(folder, chunk, arrays)


def drawn_sample(seed: int, number: int) -> tuple[int, Sample]:
    """Index of a random scene, and a sample about one of its objects.

    The object is unique in size, colour and shape: a question can name it without its material.
    """
    for index in count(number, _STRIDE):
        objects = scene_objects(seed, index)
        unique = unique_objects(objects)
        if unique:
            queried = unique[np.random.default_rng([seed, index, 1]).integers(len(unique))]
            sample = sample_about(queried, [each.material for each in objects])
            if sample is not None:
                return index, sample
    raise AssertionError("count() is infinite")


def unique_objects(objects: Sequence[SceneObject]) -> list[int]:
    """Indices of the objects that differ from all others in size, colour or shape."""
    looks = [(each.size, each.color, each.shape) for each in objects]
    return [index for index, look in enumerate(looks) if looks.count(look) == 1]


def drawn_masks(scene: Scene, sample: Sample, size: int) -> Mask:
    """Masks (kinds,size,size): exact at the release's 128×128, then resized by `resized`."""
    masks = object_masks(scene, RELEASED, RELEASED)
    kinds = (masks.any(axis=0), masks[sample.queried], masks[list(sample.dominant)].any(axis=0))
    return resized(np.stack(kinds), size)
