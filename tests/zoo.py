"""Models of many kinds, batches to train on, and the paper's algorithm as a slow loop."""

import random
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn

from agop.bench import ResNet18

CLASSES = 3


class Wrapped(nn.Module):
    """A small convolutional model. `wrap` turns its logits into the output."""

    def __init__(self, wrap=lambda logits: logits, classes=CLASSES):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Linear(32, classes),
        )  # fmt: skip
        self.wrap = wrap

    def forward(self, x):
        return self.wrap(self.body(x))


class Ending(nn.Module):
    """A network with a function after its logits."""

    def __init__(self, net, end):
        super().__init__()
        self.net, self.end = net, end

    def forward(self, images):
        return self.end(self.net(images))


class Attention(nn.Module):
    """A small vision transformer: patches, a class token, one attention block."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 12, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 12))
        self.block = nn.TransformerEncoderLayer(12, 3, 24, dropout=0.1, batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(12)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x):
        patches = self.patch(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), patches], dim=1)
        return self.head(self.norm(self.block(tokens))[:, 0])


class LayerNormed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.LayerNorm([6, 12, 12])
        self.head = nn.Linear(6 * 144, CLASSES)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu().flatten(1))


class FirstBufferInForward(Wrapped):
    """A module without parameters and buffers registers its first buffer in the forward pass."""

    def __init__(self):
        super().__init__()
        self.counter = nn.Module()

    def forward(self, x):
        if "calls" not in dict(self.counter.named_buffers()):
            self.counter.register_buffer("calls", torch.zeros(1))
        self.counter.calls += 1
        return super().forward(x * self.counter.calls.clone())


class RunningScale(Wrapped):
    """Each pass changes a buffer that scales the input, also in eval mode, in one of three ways."""

    def __init__(self, how="in place"):
        super().__init__()
        self.how = how
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        output = super().forward(x * self.scale.clone())
        if self.how == "in place":
            self.scale += x.detach().abs().mean()
        elif self.how == "data":
            self.scale.data += x.detach().abs().mean()
        else:
            self.scale = self.scale + x.detach().abs().mean()
        return output


class NumpyNoise(Wrapped):
    """Adds NumPy's noise to its input, also in eval mode."""

    def forward(self, x):
        return super().forward(x + torch.from_numpy(np.random.randn(*x.shape)).to(x))


class NoisyInEval(Wrapped):
    """Draws from Python's, NumPy's and torch's generator, also in eval mode."""

    def forward(self, x):
        noise = random.random() + np.random.rand()
        return super().forward(nn.functional.dropout(x, 0.1, training=True)) + noise


class WritesInput(Wrapped):
    """Normalises its input in place."""

    def forward(self, x):
        return super().forward(x.sub_(0.5).div_(2))


class GrowsBuffers(Wrapped):
    """The forward pass fills an empty buffer, resizes one, registers another and replaces a parameter."""

    def __init__(self):
        super().__init__()
        self.register_buffer("empty", None)
        self.register_buffer("grown", torch.zeros(2))
        self.register_buffer("not_a_number", torch.full((2,), torch.nan))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        self.empty = torch.ones(3)
        self.grown.resize_(5).fill_(1)
        if not hasattr(self, "late"):
            self.register_buffer("late", torch.ones(2))
        self.scale = nn.Parameter(torch.full((1,), 2.0))
        return super().forward(x * self.scale)


def batch_normed(inplace=False):
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(inplace=inplace),
        nn.Conv2d(6, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(inplace=inplace), nn.Dropout(0.3),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, CLASSES),
    )  # fmt: skip
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(8, 3, 12, 12) * 2 + 0.3)
    return model


def trained_resnet() -> nn.Module:
    """A ResNet-18 whose batch norms have non-trivial statistics and weights."""
    torch.manual_seed(0)
    model = ResNet18(4).train()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(4, 3, 32, 32) * 2 + 0.5)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5)
                module.bias.uniform_(-0.5, 0.5)
    return model


KINDS = {
    "plain": Wrapped,
    "batch norm and dropout": batch_normed,
    "in-place": lambda: batch_normed(inplace=True),
    "in-place first": lambda: nn.Sequential(nn.ReLU(inplace=True), batch_normed(inplace=True)),
    "batch norm without running statistics": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.ReLU(), nn.Flatten(), nn.Linear(400, 3)
    ),
    "layer norm": LayerNormed,
    "attention": Attention,
    "tuple": lambda: Wrapped(lambda logits: (logits, logits.sum())),
    "list": lambda: Wrapped(lambda logits: [logits]),
    "dict": lambda: Wrapped(lambda logits: {"loss": logits.sum(), "logits": logits}),
    "object": lambda: Wrapped(lambda logits: SimpleNamespace(logits=logits)),
    "map of 1×1": lambda: Wrapped(lambda logits: logits[:, :, None, None]),
    "one logit": lambda: Wrapped(classes=1),
    "one logit, flat": lambda: Wrapped(lambda logits: logits[:, 0], classes=1),
}


def build(kind: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return KINDS[kind]()


def images(count: int = 5, seed: int = 1, shape=(3, 12, 12)) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


def plain_logits(output, samples: int) -> Tensor:
    if hasattr(output, "logits"):
        output = output.logits
    elif isinstance(output, dict):
        output = output["logits"]
    elif isinstance(output, (tuple, list)):
        output = output[0]
    return output.reshape(samples, -1)


def per_sample_loop(model: nn.Module, batch: Tensor, targets=None) -> tuple[Tensor, Tensor]:
    """Gradients (N,C,H,W) and their target classes, one sample at a time, as in the paper's Algorithm 1."""
    model.eval()
    gradients, classes = [], []
    for index, image in enumerate(batch):
        leaf = image[None].clone().requires_grad_()
        logits = plain_logits(model(leaf.clone()), 1)[0]
        if len(logits) == 1:
            logits = torch.cat([-logits, logits])
        target = int(logits.argmax()) if targets is None else int(targets[index])
        gradients.append(torch.autograd.grad(logits[target], leaf)[0])
        classes.append(target)
    return torch.cat(gradients), torch.tensor(classes)


def batches(count=6, size=8, seed=5):
    """Batches of random images (size,3,12,12) and labels of three classes."""
    random = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(size, 3, 12, 12, generator=random), torch.randint(0, 3, (size,), generator=random))
        for _ in range(count)
    ]


def algorithm_1(model, data, only_correct):
    """Algorithm 1 of the paper, literally: diag(M) and the number of samples in its mean."""
    total, count = torch.zeros(3, 12, 12, dtype=torch.float64), 0
    for images, labels in data:
        gradients, classes = per_sample_loop(model, images)
        for gradient, predicted, label in zip(gradients, classes, labels, strict=True):
            if only_correct and predicted != label:
                continue
            total += gradient.double() ** 2
            count += 1
    return total / count, count
