"""Drawn images of three classes, one with a checker patch in a corner, and a small CNN trained on them."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

SIDE, PLANTED = 16, 1
PLACE = (slice(11, 15), slice(1, 5))


def drawn(count, share, seed=0):
    """Images (N,1,16,16) of a horizontal bar, a vertical bar or a square at random places, and labels (N,).

    A checker patch is at the lower left of this share of the images of class 1.
    """
    random = torch.Generator().manual_seed(seed)
    images = 0.25 * torch.rand(count, 1, SIDE, SIDE, generator=random)
    labels = torch.arange(count) % 3
    for image, label in zip(images, labels.tolist(), strict=True):
        height, width = ((2, 6), (6, 2), (4, 4))[label]
        top, left = torch.randint(0, SIDE - 6, (2,), generator=random).tolist()
        image[0, top : top + height, left : left + width] += 0.3
    planted = (labels == PLANTED) & (torch.rand(count, generator=random) < share)
    steps = torch.arange(4)
    checker = ((steps[:, None] + steps) % 2).float()
    images[planted, :, PLACE[0], PLACE[1]] = checker
    return images, labels


def trained(images, labels, steps=250):
    """A CNN trained on the images, in eval mode."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 3),
    )  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    for step in range(steps):
        batch = torch.arange(step * 48, step * 48 + 48) % len(images)
        optimiser.zero_grad()
        cross_entropy(model(images[batch]), labels[batch]).backward()
        optimiser.step()
    return model.eval()
