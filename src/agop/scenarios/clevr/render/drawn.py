"""The paper's task on scenes drawn offline: made once in parallel processes, kept in the user's cache."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from agop.errors import FileError, InputError, warn
from agop.scenarios.clevr.release.masks import RELEASED, Mask, resized
from agop.scenarios.clevr.release.official import Pictures
from agop.scenarios.clevr.render.raycast import object_masks, render
from agop.scenarios.clevr.render.scene import Scene, random_scene, scene_objects
from agop.scenarios.clevr.render.things import Thing
from agop.scenarios.clevr.task import KINDS, Sample, sample_about
from agop.system.files import read_bytes, write_atomically
from agop.system.processes import map_in_processes
from agop.system.progress import track

# A new number for every change of the pictures: what another version drew is not used.
_VERSION = 1
_A_CHUNK = 20
# Sample n takes the first scene of n, n + this, n + twice this … that fits the task: no scene is taken twice.
_STRIDE = 10_000_000


def drawn(samples: int, size: int = 64, seed: int = 0, jobs: int = 1, cache: Path | None = None) -> Pictures:
    """The first so many samples of a seed, from the cache or drawn now; what is drawn stays, also after a kill."""
    if samples < 1:
        raise InputError(f"samples is {samples}: give 1 or more")
    folder = (cache or cache_folder()) / "clevr" / f"v{_VERSION}-seed{seed}-{size}"
    chunks = range(-(-samples // _A_CHUNK))
    missing = [chunk for chunk in chunks if not _whole(folder, chunk)]
    work = partial(_draw_chunk, folder, size, seed)
    for _ in track(map_in_processes(work, missing, jobs), "drawing scenes", total=len(missing), show=bool(missing)):
        pass
    parts = [_read_chunk(folder, chunk) for chunk in chunks]
    joined = {name: np.concatenate([part[name] for part in parts])[:samples] for name in parts[0]}
    masks = np.unpackbits(joined["masks"], axis=-1).astype(bool).reshape(samples, len(KINDS), size, size)
    by_kind = {kind: masks[:, place] for place, kind in enumerate(KINDS)}
    return Pictures(joined["pictures"], joined["labels"], joined["scenes"], by_kind)


def cache_folder() -> Path:
    """Where drawn pictures are kept: AGOP_CACHE, or agop in the user's cache folder."""
    if os.environ.get("AGOP_CACHE"):
        return Path(os.environ["AGOP_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agop"


def sample_of(seed: int, number: int) -> tuple[int, Sample]:
    """A scene's index and a question about one of its objects whose material dominates.

    The object must be unique in size, colour and shape, so that a question can name it without its material.
    """
    for index in count(number, _STRIDE):
        objects = scene_objects(seed, index)
        unique = unique_objects(objects)
        if unique:
            queried = unique[np.random.default_rng([seed, index, 1]).integers(len(unique))]
            sample = sample_about(queried, [thing.material for thing in objects])
            if sample is not None:
                return index, sample
    raise AssertionError("count() has no end")


def unique_objects(objects: Sequence[Thing]) -> list[int]:
    """Indices of the objects that no other equals in size, colour and shape."""
    looks = [(thing.size, thing.color, thing.shape) for thing in objects]
    return [index for index, look in enumerate(looks) if looks.count(look) == 1]


def masks_of(scene: Scene, sample: Sample, size: int) -> Mask:
    """The masks (kinds,size,size): exact at the release's 128×128, then made smaller by `resized`."""
    things = object_masks(scene, RELEASED, RELEASED)
    kinds = (things.any(axis=0), things[sample.queried], things[list(sample.dominant)].any(axis=0))
    return resized(np.stack(kinds), size)


def _draw_chunk(folder: Path, size: int, seed: int, chunk: int) -> None:
    indices, samples = zip(*(sample_of(seed, chunk * _A_CHUNK + place) for place in range(_A_CHUNK)), strict=True)
    scenes = [random_scene(seed, index) for index in indices]
    masks = np.stack([masks_of(scene, sample, size) for scene, sample in zip(scenes, samples, strict=True)])
    buffer = io.BytesIO()
    np.savez(
        buffer,
        pictures=np.stack([render(scene, size, size) for scene in scenes]),
        labels=np.array([sample.label for sample in samples]),
        scenes=np.array(indices),
        masks=np.packbits(masks.reshape(*masks.shape[:2], -1), axis=-1),
    )
    write_atomically(_path(folder, chunk), buffer.getvalue())
    write_atomically(_path(folder, chunk).with_suffix(".sha256"), _digest(buffer.getvalue()))


def _whole(folder: Path, chunk: int) -> bool:
    path = _path(folder, chunk)
    if not path.exists() or not path.with_suffix(".sha256").exists():
        return False
    whole = _digest(read_bytes(path)) == read_bytes(path.with_suffix(".sha256"))
    if not whole:
        warn(f"{path} is not what was written there: its scenes are drawn again")
    return whole


def _read_chunk(folder: Path, chunk: int) -> dict[str, NDArray[np.generic]]:
    path = _path(folder, chunk)
    try:
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as file:
            return {name: file[name] for name in ("pictures", "labels", "scenes", "masks")}
    except (ValueError, KeyError, BadZipFile) as error:
        raise FileError(f"{path} cannot be read: delete it, and its scenes are drawn again ({error})") from error


def _path(folder: Path, chunk: int) -> Path:
    return folder / f"scenes-{chunk:05d}.npz"


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
