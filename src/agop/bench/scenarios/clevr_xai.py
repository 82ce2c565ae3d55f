"""CLEVR-XAI: does metal or rubber dominate the scene? On the official images, or on scenes drawn offline."""

import io
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from agop.bench.networks import efficientnet_lite0, resnet18
from agop.bench.scenarios.base import BLACK, WHITE, Recipe, Scenario, Splits, options_of, register, selected
from agop.bench.scenarios.clevr_release import KINDS, RELEASED, Mask, Sample, read_release, resized, sample_about
from agop.bench.scenarios.clevr_render import object_masks, render
from agop.bench.scenarios.clevr_scene import Scene, random_scene, scene_objects
from agop.errors import FileError, InputError
from agop.io import read_bytes, write_atomically
from agop.processes import run_each, track
from agop.registry import unknown_name_error

_TRAINING_SHARE = 0.8
_PAPER = Recipe(epochs=50, batch=64, learning_rate=1e-4, weight_decay=0.0, best=True, snapshot_every=None)
_SHORT = replace(
    _PAPER, epochs=12, learning_rate=2e-3, weight_decay=1e-2, optimizer="adamw", schedule="one-cycle", flips=True,
    hook_every=4,
)  # fmt: skip
# Pretrained weights get a lower learning rate.
_RECIPES = {"paper": _PAPER, "short": _SHORT, "fine-tuning": replace(_SHORT, epochs=8, learning_rate=5e-4)}
# GradCAM's layers for each network: the paper's, with a 2×2 map at 64 px, and a finer one, with an 8×8 map.
LAYERS = {"resnet18": ("layer4", "layer2"), "efficientnet-lite0": ("_conv_head", "_blocks.4")}


@dataclass(frozen=True)
class Options:
    """Options of a CLEVR-XAI run. `data` is a folder with the official release; without it, scenes are drawn."""

    data: str | None = None
    samples: int = 4952
    size: int = 64
    network: str = "resnet18"
    weights: str | None = None
    recipe: str = "short"

    def __post_init__(self) -> None:
        if self.network not in LAYERS:
            raise unknown_name_error("network", self.network, list(LAYERS))
        if self.recipe not in _RECIPES:
            raise unknown_name_error("recipe", self.recipe, list(_RECIPES))
        if self.weights is not None and self.network != "resnet18":
            raise InputError(f"{self.network} has its own weights: remove --weights, or use --network resnet18")
        if self.samples < 10:
            raise InputError(f"samples is {self.samples}: pass 10 or more")

    @property
    def fine_tunes(self) -> bool:
        """Whether the network starts from pretrained weights."""
        return self.weights is not None or self.network != "resnet18"


def clevr_xai(**options: Any) -> Scenario:
    """The scenario with options, the fields of `Options`."""
    settings = options_of(Options, options)
    scratch = "trained from scratch (no ImageNet weights given)"
    start = "fine-tuned from ImageNet weights" if settings.fine_tunes else scratch
    images = f"{settings.samples:,} scenes drawn offline" if settings.data is None else "the official images"
    recipe = _RECIPES[settings.recipe]
    return Scenario(
        "clevr-xai",
        "clevr-xai",
        partial(_splits, settings),
        partial(efficientnet_lite0, 2) if settings.network != "resnet18" else partial(resnet18, 2, settings.weights),
        layer=LAYERS[settings.network][0],
        backgrounds=("drawn", "official"),
        masks=KINDS,
        recipe=recipe,
        prior="checkpoint",
        snapshot_images=100,
        threads=2,
        black=BLACK,
        white=WHITE,
        classes=("metal", "rubber"),
        description=f"{settings.network}, {start}: {recipe}, on {images} at {settings.size}×{settings.size}.",
        configure=lambda options: clevr_xai(**options),
    )


def _splits(options: Options, background: str, seed: int, masks: str) -> Splits:
    """Training and validation data, split by scene. As in the paper, the validation data is also the test data."""
    if (background == "official") != (options.data is not None):
        raise InputError(f"background is {background!r}, data is {options.data!r}: pass data for official images only")
    if options.data is None:
        dataset = drawn_dataset(options.samples, options.size)
    else:
        # By default all samples of the release; a quick run uses fewer.
        samples = None if options.samples == Options.samples else options.samples
        dataset = official_dataset(Path(options.data), options.size, samples)
    training, validation = by_scene(dataset.scenes, seed)
    if not len(training) or not len(validation):
        raise InputError(f"{len(dataset.scenes)} samples are too few for training and validation: use more")
    train, held_out = selected((training, validation), dataset.images, dataset.labels, dataset.masks, masks)
    return train, held_out, held_out


def by_scene(scenes: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of training and validation samples, about 80 and 20 %. All samples of a scene are in the same split."""
    names, scene = np.unique(scenes, return_inverse=True)
    # Samples in the order of their shuffled scenes. The cut moves to the end of a scene.
    position = np.random.default_rng(seed).permutation(len(names))[scene]
    shuffled = np.argsort(position, kind="stable")
    cut = round(_TRAINING_SHARE * len(scenes))
    while 0 < cut < len(scenes) and position[shuffled[cut]] == position[shuffled[cut - 1]]:
        cut += 1
    return shuffled[:cut], shuffled[cut:]


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
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agop"
    folder = Path(cache or os.environ.get("AGOP_CACHE") or own) / "clevr" / f"v{_VERSION}-seed{seed}-{size}"
    paths = {chunk: folder / f"scenes-{chunk:05d}.npz" for chunk in range(-(-samples // _CHUNK))}
    missing = [chunk for chunk, path in paths.items() if not path.exists()]
    work = partial(_draw_chunk, paths, size, seed, _CHUNK)
    with closing(run_each(work, missing, jobs)) as drawn:
        for _ in track(drawn, "drawing scenes", total=len(missing), show=bool(missing)):
            pass
    parts = [_read_chunk(path) for path in paths.values()]
    joined = {name: np.concatenate([part[name] for part in parts])[:samples] for name in parts[0]}
    masks = np.unpackbits(joined["masks"], axis=-1).astype(bool).reshape(samples, len(KINDS), size, size)
    by_kind = {kind: masks[:, place] for place, kind in enumerate(KINDS)}
    return Dataset(joined["pictures"], joined["labels"], joined["scenes"], by_kind)


def _draw_chunk(paths: Mapping[int, Path], size: int, seed: int, length: int, chunk: int) -> None:
    indices, samples = zip(*(drawn_sample(seed, chunk * length + place) for place in range(length)), strict=True)
    scenes = [random_scene(seed, index) for index in indices]
    masks = np.stack([drawn_masks(scene, sample, size) for scene, sample in zip(scenes, samples, strict=True)])
    buffer = io.BytesIO()
    np.savez(
        buffer,
        pictures=np.stack([render(scene, size, size) for scene in scenes]),
        labels=np.array([sample.label for sample in samples]),
        scenes=np.array(indices),
        masks=np.packbits(masks.reshape(*masks.shape[:2], -1), axis=-1),
    )
    write_atomically(paths[chunk], buffer.getvalue())


def _read_chunk(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as file:
            return dict(file)
    except (ValueError, KeyError, BadZipFile) as error:
        raise FileError(f"could not read {path} ({error}): delete it, and its scenes will be drawn again") from error


def drawn_sample(seed: int, number: int) -> tuple[int, Sample]:
    """Index of a random scene, and a sample about an object that a question can name without its material."""
    while True:
        objects = scene_objects(seed, number)
        looks = [(each.size, each.color, each.shape) for each in objects]
        unique = [place for place, look in enumerate(looks) if looks.count(look) == 1]
        if unique:
            queried = unique[np.random.default_rng([seed, number, 1]).integers(len(unique))]
            if sample := sample_about(queried, [each.material for each in objects]):
                return number, sample
        number += _STRIDE


def drawn_masks(scene: Scene, sample: Sample, size: int) -> Mask:
    """Masks (kinds,size,size): exact at the release's 128×128, then resized by `resized`."""
    masks = object_masks(scene, RELEASED, RELEASED)
    kinds = (masks.any(axis=0), masks[sample.queried], masks[list(sample.dominant)].any(axis=0))
    return resized(np.stack(kinds), size)


register(clevr_xai())
