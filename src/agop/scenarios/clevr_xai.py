"""CLEVR-XAI: does metal or rubber dominate the scene? On the official images, or on scenes drawn offline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from agop.errors import InputError
from agop.networks.pretrained import efficientnet_lite0, resnet18
from agop.registry import unknown_name_error
from agop.scenarios.base import Recipe, Scenario, Split, Splits, options_of, register
from agop.scenarios.clevr.dataset import Dataset, drawn_dataset, official_dataset
from agop.scenarios.clevr.task import KINDS
from agop.scenarios.colours import BLACK, WHITE, normalised

SAMPLES, SIZE = 4952, 64
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
    samples: int = SAMPLES
    size: int = SIZE
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
    return Scenario(
        "clevr-xai",
        "clevr-xai",
        partial(_splits, settings),
        partial(_network, settings),
        layer=LAYERS[settings.network][0],
        backgrounds=("drawn", "official"),
        masks=KINDS,
        recipe=_RECIPES[settings.recipe],
        prior="checkpoint",
        snapshot_images=100,
        threads=2,
        black=BLACK,
        white=WHITE,
        classes=("metal", "rubber"),
        description=_description(settings),
        configure=_configure,
    )


def _configure(options: Mapping[str, Any]) -> Scenario:
    return clevr_xai(**options)


def _description(options: Options) -> str:
    """A sentence for the report: network, training and data."""
    start = (
        "fine-tuned from ImageNet weights" if options.fine_tunes else "trained from scratch (no ImageNet weights given)"
    )
    recipe = _RECIPES[options.recipe]
    images = f"{options.samples:,} scenes drawn offline" if options.data is None else "the official images"
    return (
        f"{options.network}, {start}: {recipe.optimizer}, {recipe.schedule} to {recipe.learning_rate:g}, batch "
        f"{recipe.batch}, on {images} at {options.size}×{options.size}."
    )


def _network(options: Options) -> nn.Module:
    if options.network == "efficientnet-lite0":
        return efficientnet_lite0(2)
    return resnet18(2, None if options.weights is None else Path(options.weights))


def _splits(options: Options, background: str, seed: int, masks: str) -> Splits:
    """Training and validation data, split by scene. As in the paper, the validation data is also the test data."""
    if (background == "official") != (options.data is not None):
        raise InputError(f"background is {background!r}, data is {options.data!r}: pass data for official images only")
    dataset = _dataset(options)
    training, validation = by_scene(dataset.scenes, seed)
    if not len(training) or not len(validation):
        raise InputError(f"{len(dataset.scenes)} samples are too few for training and validation: use more")
    held_out = _split(dataset, validation, masks)
    return _split(dataset, training, masks), held_out, held_out


def _dataset(options: Options) -> Dataset:
    if options.data is None:
        return drawn_dataset(options.samples, options.size)
    # By default all samples of the release; a quick run uses fewer.
    return official_dataset(Path(options.data), options.size, None if options.samples == SAMPLES else options.samples)


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


def _split(dataset: Dataset, rows: NDArray[np.int64], masks: str) -> Split:
    by_kind = {kind: torch.from_numpy(of_kind[rows]) for kind, of_kind in dataset.masks.items()}
    main = by_kind.pop(masks)
    return Split(normalised(dataset.images[rows]), torch.from_numpy(dataset.labels[rows]), main, by_kind)


register(clevr_xai())
