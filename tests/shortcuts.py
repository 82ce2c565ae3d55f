"""Drawn images of three classes, one with something planted, and a small CNN trained on them."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

SIDE, PLANTED = 16, 1
PLACE = (slice(11, 15), slice(1, 5))


def drawn(count, share, seed=0, plant="patch"):
    """Images (N,1,16,16) of a horizontal bar, a vertical bar or a square at random places, and labels (N,).

    This share of the images of class 1 has a checker patch at the bottom left, a bright frame, or a faint grid.
    """
    random = torch.Generator().manual_seed(seed)
    images = 0.25 * torch.rand(count, 1, SIDE, SIDE, generator=random)
    labels = torch.arange(count) % 3
    for image, label in zip(images, labels.tolist(), strict=True):
        height, width = ((2, 6), (6, 2), (4, 4))[label]
        top, left = torch.randint(0, SIDE - 6, (2,), generator=random).tolist()
        image[0, top : top + height, left : left + width] += 0.3
    planted = (labels == PLANTED) & (torch.rand(count, generator=random) < share)
    images[planted] = PLANTS[plant](images[planted])
    return images, labels


def _patch(images):
    steps = torch.arange(4)
    images[:, :, PLACE[0], PLACE[1]] = ((steps[:, None] + steps) % 2).float()
    return images


def _frame(images):
    inside = torch.zeros(SIDE, SIDE, dtype=torch.bool)
    inside[1:-1, 1:-1] = True
    return torch.where(inside, images, 0.8)


def _grid(images):
    return images + 0.3 * (torch.arange(SIDE) % 2)


PLANTS = {"patch": _patch, "frame": _frame, "grid": _grid}


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


def without_times(audit):
    """The audit as JSON values, without measured times and the recommendation, which names them."""
    values = audit if isinstance(audit, dict) else audit.to_dict()
    selection = {name: value for name, value in values["selection"].items() if name in ("best", "images", "notes")}
    rows = values["selection"]["methods"]
    methods = [{name: row[name] for name in row if name not in ("milliseconds", "gradients")} for row in rows]
    return values | {"selection": selection | {"methods": methods}}
