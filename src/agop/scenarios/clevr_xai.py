"""CLEVR-XAI: does metal or rubber dominate the scene? Official pictures, or scenes drawn offline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agop.errors import InputError
from agop.networks.pretrained import efficientnet_lite0, resnet18
from agop.pictures.preprocessing import IMAGENET
from agop.registry import unknown_name_error
from agop.scenarios.base import Recipe, Scenario, Split, Splits, register
from agop.scenarios.clevr.dataset import Dataset, drawn_dataset, official_dataset
from agop.scenarios.clevr.task import KINDS

SAMPLES, SIZE = 4952, 64
_TRAINING_SHARE = 0.8
_PAPER = Recipe(epochs=50, batch=64, learning_rate=1e-4, weight_decay=0.0, best=True, snapshot_every=None)
_SHORT = replace(
    _PAPER, epochs=12, learning_rate=2e-3, weight_decay=1e-2, optimizer="adamw", schedule="one-cycle", flips=True,
    hook_every=4,
)  # fmt: skip
# By name of a recipe; weights that are trained already take a gentler one.
_RECIPES = {"paper": _PAPER, "short": _SHORT, "fine-tuning": replace(_SHORT, epochs=8, learning_rate=5e-4)}
# Of each network, GradCAM's layer as the paper has it, with a map of 2×2 at 64 px, and a finer one of 8×8.
LAYERS = {"resnet18": ("layer4", "layer2"), "efficientnet-lite0": ("_conv_head", "_blocks.4")}


@dataclass(frozen=True)
class Options:
    """What a run of CLEVR-XAI can choose: official data from a folder or drawn scenes, the network, its recipe."""

    data: str | None = None
    samples: int = SAMPLES
    size: int = SIZE
    network: str = "resnet18"
    weights: str | None = None
    recipe: str = "short"

    def __post_init__(self) -> None:
        for kind, value, known in (("network", self.network, LAYERS), ("recipe", self.recipe, _RECIPES)):
            if value not in known:
                raise unknown_name_error(kind, value, list(known))
        if self.weights is not None and self.network != "resnet18":
            raise InputError(f"{self.network} brings its own weights: leave --weights out, or take --network resnet18")
        if self.samples < 10:
            raise InputError(f"samples is {self.samples}: give 10 or more")

    @property
    def fine_tunes(self) -> bool:
        """Whether the network starts from trained weights."""
        return self.weights is not None or self.network != "resnet18"


def clevr_xai(**options: Any) -> Scenario:
    """The scenario with options: data, samples, size, network, weights, recipe."""
    wrong = options.keys() - {field.name for field in fields(Options)}
    if wrong:
        raise unknown_name_error("option", min(wrong), [field.name for field in fields(Options)])
    chosen = Options(**options)
    return Scenario(
        "clevr-xai",
        "clevr-xai",
        partial(_splits, chosen),
        partial(_network, chosen),
        layer=LAYERS[chosen.network][0],
        backgrounds=("drawn", "official"),
        masks=KINDS,
        recipe=_RECIPES[chosen.recipe],
        prior="checkpoint",
        watched=100,
        threads=2,
        black=tuple(-mean / std for mean, std in zip(IMAGENET["mean"], IMAGENET["std"], strict=True)),
        white=tuple((1 - mean) / std for mean, std in zip(IMAGENET["mean"], IMAGENET["std"], strict=True)),
        classes=("metal", "rubber"),
        told=_told(chosen),
        configure=_configured,
    )


def _told(options: Options) -> str:
    """What is trained, how and on what."""
    start = (
        "fine-tuned from ImageNet weights" if options.fine_tunes else "trained from scratch (no ImageNet weights given)"
    )
    recipe = _RECIPES[options.recipe]
    pictures = f"{options.samples:,} scenes drawn offline" if options.data is None else "the official pictures"
    return (
        f"{options.network}, {start}: {recipe.optimizer}, {recipe.schedule} to {recipe.learning_rate:g}, batch "
        f"{recipe.batch}, on {pictures} at {options.size}×{options.size}."
    )


def _configured(options: Mapping[str, Any]) -> Scenario:
    return clevr_xai(**options)


def _network(options: Options) -> nn.Module:
    if options.network == "efficientnet-lite0":
        return efficientnet_lite0(2)
    return resnet18(2, None if options.weights is None else Path(options.weights))


def _splits(options: Options, background: str, seed: int, masks: str) -> Splits:
    """Training and validation data by scene; the samples that are explained are the validation's, as in the paper."""
    if (background == "official") != (options.data is not None):
        raise InputError(f"{background} pictures with data {options.data!r}: give a folder for official ones alone")
    dataset = _dataset(options)
    training, validation = by_scene(dataset.scenes, seed)
    if not len(training) or not len(validation):
        raise InputError(f"{len(dataset.scenes)} samples are too few for training and validation: get more")
    held_out = _split(dataset, validation, masks)
    return _split(dataset, training, masks), held_out, held_out


def _dataset(options: Options) -> Dataset:
    if options.data is None:
        return drawn_dataset(options.samples, options.size)
    # By default all samples of the release; a quick run uses fewer.
    return official_dataset(Path(options.data), options.size, None if options.samples == SAMPLES else options.samples)


def by_scene(scenes: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of training and validation samples, about 80 and 20 %: all samples of a scene on one side."""
    names, number = np.unique(scenes, return_inverse=True)
    # Samples in the order of their shuffled scenes; the cut moves to the end of a scene.
    place = np.random.default_rng(seed).permutation(len(names))[number]
    shuffled = np.argsort(place, kind="stable")
    cut = round(_TRAINING_SHARE * len(scenes))
    while 0 < cut < len(scenes) and place[shuffled[cut]] == place[shuffled[cut - 1]]:
        cut += 1
    return shuffled[:cut], shuffled[cut:]


def _split(dataset: Dataset, rows: NDArray[np.int64], masks: str) -> Split:
    by_kind = {kind: torch.from_numpy(of_kind[rows]) for kind, of_kind in dataset.masks.items()}
    main = by_kind.pop(masks)
    return Split(_normalised(dataset.images[rows]), torch.from_numpy(dataset.labels[rows]), main, by_kind)


def _normalised(images: NDArray[np.uint8]) -> Tensor:
    """Images (N,3,S,S), normalised by ImageNet's mean and standard deviation, from bytes (N,S,S,3)."""
    mean, std = (torch.tensor(IMAGENET[name]).view(1, 3, 1, 1) for name in ("mean", "std"))
    return (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - mean) / std


register(clevr_xai())
