"""Draw scenes with two shapes of different classes, and train a small U-Net, a detector and a regression network.

`python examples/two_objects.py SEEDS` prints how much of the maps for one object is on that object, and on the other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import mean
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy, cross_entropy, interpolate, max_pool2d, mse_loss, smooth_l1_loss

import agop
from agop.stats import Ratio, estimate

SHAPES = ("disc", "square", "cross")
SIDE, CELL = 32, 4
METHODS = ("agop", "vanilla", "integrated-gradients", "expected-gradients", "gradcam", "sobel")


class Scenes(NamedTuple):
    """Images (N,3,32,32); of the two objects masks (N,2,32,32), classes (N,2), and boxes (N,2,4) in pixels."""

    images: Tensor
    masks: Tensor
    classes: Tensor
    boxes: Tensor


def draw(count: int, seed: int) -> Scenes:
    """Scenes of two shapes of different classes, one in each half, in noise."""
    random = torch.Generator().manual_seed(seed)
    classes = torch.rand(count, 3, generator=random).argsort(dim=1)[:, :2]
    centres = 7 + torch.rand(count, 2, 2, generator=random) * torch.tensor([17.0, 4.0])
    centres[:, 1, 1] += 14
    upright = torch.rand(count, generator=random) < 0.5
    centres[upright] = centres[upright].flip(2)
    radii = 3 + 2 * torch.rand(count, 2, 1, 1, generator=random)
    pixels = torch.stack(torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="xy"))
    away = (pixels - centres[..., None, None]).abs()
    square = away.amax(dim=2) <= radii
    shapes = [away.square().sum(dim=2) <= (1.1 * radii) ** 2, square, square & (away.amin(dim=2) <= radii / 3)]
    masks = torch.stack([(classes == each)[..., None, None] & shape for each, shape in enumerate(shapes)]).any(dim=0)
    colours = 0.4 + 0.6 * torch.rand(count, 2, 3, 1, 1, generator=random)
    images = 0.15 * torch.randn(count, 3, SIDE, SIDE, generator=random) + (masks[:, :, None] * colours).sum(dim=1)
    return Scenes(images, masks, classes, torch.cat([centres - radii[..., 0], centres + radii[..., 0]], dim=2))


def block(inputs: int, outputs: int) -> nn.Module:
    """Two convolutions."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Logits (N,4,32,32) of the background and the three shapes, in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle, self.bottom = block(3, 12), block(12, 24), block(24, 48)
        self.up, self.last, self.head = block(72, 24), block(36, 12), nn.Conv2d(12, 4, 1)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """The logits as "out"."""
        fine = self.down(images)
        middle = self.middle(max_pool2d(fine, 2))
        coarse = self.up(torch.cat([middle, interpolate(self.bottom(max_pool2d(middle, 2)), scale_factor=2)], dim=1))
        return {"out": self.head(self.last(torch.cat([fine, interpolate(coarse, scale_factor=2)], dim=1)))}


class Encoder(nn.Module):
    """Features (N,64,8,8), and numbers (N,D) of them: with D = 3 the areas of the three shapes."""

    def __init__(self, numbers: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(
            block(3, 16), nn.MaxPool2d(2), block(16, 32), nn.MaxPool2d(2), block(32, 64), block(64, 64)
        )
        self.head = nn.Conv2d(64, numbers, 1)

    def forward(self, images: Tensor) -> Tensor:
        """The numbers, summed over places."""
        return self.head(self.body(images)).sum(dim=(2, 3))


class Detector(Encoder):
    """Per cell of 4×4 pixels a box (centre and size) and the scores of three shapes: (N,7,64)."""

    def __init__(self) -> None:
        super().__init__(4 + len(SHAPES))

    def forward(self, images: Tensor) -> Tensor:
        """The predictions."""
        raw = self.head(self.body(images))
        places = torch.arange(SIDE // CELL, device=raw.device)
        corners = CELL * torch.stack(torch.meshgrid(places, places, indexing="xy"))
        boxes = torch.cat([corners + CELL / 2 + CELL * raw[:, :2], CELL * raw[:, 2:4].exp()], dim=1)
        return torch.cat([boxes, raw[:, 4:].sigmoid()], dim=1).flatten(2)


def segmentation_loss(net: nn.Module, scenes: Scenes) -> Tensor:
    """Cross-entropy of the classes of the pixels."""
    return cross_entropy(net(scenes.images)["out"], ((scenes.classes[..., None, None] + 1) * scenes.masks).amax(dim=1))


def detection_loss(net: nn.Module, scenes: Scenes) -> Tensor:
    """The cell of an object's centre predicts its box; the other cells predict nothing."""
    found, rows = net(scenes.images), torch.arange(len(scenes.images))
    centres, sizes = (scenes.boxes[..., :2] + scenes.boxes[..., 2:]) / 2, scenes.boxes[..., 2:] - scenes.boxes[..., :2]
    places = (centres // CELL).long() @ torch.tensor([1, SIDE // CELL])
    truth, wrong = torch.zeros_like(found[:, 4:]), torch.zeros(())
    for each in (0, 1):
        truth[rows, scenes.classes[:, each], places[:, each]] = 1
        box = torch.cat([centres[:, each], sizes[:, each]], dim=1)
        wrong = wrong + smooth_l1_loss(found[rows, :4, places[:, each]], box)
    return 20 * binary_cross_entropy(found[:, 4:], truth) + 0.2 * wrong


def regression_loss(net: nn.Module, scenes: Scenes) -> Tensor:
    """The areas of the three shapes, in hundreds of pixels."""
    areas = torch.zeros(len(scenes.images), 3).scatter(1, scenes.classes, scenes.masks.sum(dim=(2, 3)) / 100)
    return mse_loss(net(scenes.images), areas)


def train(net: nn.Module, loss: Callable[[nn.Module, Scenes], Tensor], scenes: Scenes, epochs: int = 8) -> nn.Module:
    """The network, trained, in eval mode."""
    steps = epochs * (len(scenes.images) // 64)
    optimizer = torch.optim.Adam(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    for _ in range(epochs):
        for batch in torch.randperm(len(scenes.images))[: len(scenes.images) // 64 * 64].split(64):
            optimizer.zero_grad()
            loss(net, Scenes(*(values[batch] for values in scenes))).backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def context(masks: Tensor, margin: int = 3) -> Tensor:
    """The pixels of masks (N,32,32) and those around them."""
    return max_pool2d(masks.float(), 2 * margin + 1, 1, margin) > 0


def shares(maps: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """Shares (N,2) of maps in the context of one object and not of the other, and the other way round."""
    own, other = context(own), context(other)
    both = [(maps * part).sum(dim=(1, 2)) / maps.sum(dim=(1, 2)) for part in (own & ~other, other & ~own)]
    return torch.stack(both, dim=1)


def inside(boxes: Tensor) -> Tensor:
    """Masks (N,32,32) of boxes (N,4)."""
    x, y = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="xy")
    left, top, right, bottom = boxes[..., None, None].unbind(dim=1)
    return (x >= left - 0.5) & (x <= right + 0.5) & (y >= top - 0.5) & (y <= bottom + 0.5)


def measure(seed: int) -> dict[tuple[str, str], Tensor]:
    """For each task and method, shares (N,2) of the maps on the explained and on the other object of test scenes."""
    torch.manual_seed(seed)
    training, test = draw(2048, 100 + seed), draw(150, 900 + seed)
    references, found = training.images[:50], dict[tuple[str, str], Tensor]()
    unet, loader = train(UNet(), segmentation_loss, training), [training.images[:512]]
    parts: dict[str, list[Tensor]] = {}
    for shape in range(len(SHAPES)):
        is_own = test.classes == shape
        chosen = is_own.any(dim=1)
        images, masks, is_own = test.images[chosen], test.masks[chosen], is_own[chosen]
        output = agop.outputs.segment(shape + 1)
        prior = agop.fit(unet, loader, progress=False, output=output)
        for method in METHODS:
            maps = agop.explain(unet, images, method, prior, output=output, references=references)
            parts.setdefault(method, []).append(shares(maps, masks[is_own], masks[~is_own]))
    found |= {("U-Net", method): torch.cat(own) for method, own in parts.items()}
    detector = train(Detector(), detection_loss, training)
    prior = agop.fit(detector, loader, progress=False, output=agop.outputs.detection())
    own, other = (inside(test.boxes[:, place]) for place in (0, 1))
    output = agop.outputs.detection(box=test.boxes[:, 0])
    for method in METHODS:
        maps = agop.explain(detector, test.images, method, prior, output=output, references=references)
        both = [(maps * part).sum(dim=(1, 2)) / maps.sum(dim=(1, 2)) for part in (own, other)]
        found["detector", method] = torch.stack(both, dim=1)
    return found


def main(seeds: int) -> None:
    """Print the share on both objects, their ratio for all seeds and for the worst one, and how often it is larger."""
    runs = [measure(seed) for seed in range(seeds)]
    for task, method in runs[0]:
        each = [run[task, method] for run in runs]
        own, other = torch.cat(each)[torch.cat(each).isfinite().all(dim=1)].double().T.tolist()
        worst = min(float(part.nanmean(dim=0)[0] / part.nanmean(dim=0)[1]) for part in each)
        ratio, more = Ratio(tuple(own), tuple(other)), estimate([float(a > b) for a, b in zip(own, other, strict=True)])
        print(
            f"{task:9} {method:21} own {mean(own):.3f} other {mean(other):.4f} ratio {ratio.mean:.1f} {ratio.interval} "
        )
        print(f"  worst seed {worst:.1f}, more on own {more}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
