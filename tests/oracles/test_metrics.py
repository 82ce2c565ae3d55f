"""Our metrics against scikit-learn and slow loops. tests/integrations/test_quantus.py compares them with Quantus."""

import numpy as np
import pytest
import torch

from agop import metrics
from tests import zoo

skmetrics = pytest.importorskip("sklearn.metrics")


def batch(samples=200, side=8, seed=0, ties=False):
    random = torch.Generator().manual_seed(seed)
    maps = torch.rand(samples, side, side, generator=random)
    if ties:
        maps = (maps * 4).floor() / 4 + 0.25
    masks = torch.rand(samples, side, side, generator=random) < 0.2
    masks[:, 3, 3] = True
    return maps, masks


@pytest.mark.parametrize("ties", [False, True])
def test_average_precision_equals_scikit_learn(ties):
    maps, masks = batch(ties=ties)
    expected = [
        skmetrics.average_precision_score(mask.flatten().numpy(), saliency.flatten().numpy())
        for saliency, mask in zip(maps, masks, strict=True)
    ]
    torch.testing.assert_close(metrics.average_precision(maps, masks), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("ties", [False, True])
def test_ties_score_the_average_of_random_orders(ties):
    draws = 3000
    maps, masks = batch(4, ties=ties)
    random = torch.Generator().manual_seed(1)
    hits, ranks = torch.zeros(4), torch.zeros(4)
    for _ in range(draws):
        order = (maps.flatten(1) + 1e-4 * torch.rand(4, 64, generator=random)).argsort(1, descending=True)
        inside = masks.flatten(1).gather(1, order).float()
        hits += inside[:, 0]
        ranks += torch.stack([row[: int(m.sum())].mean() for row, m in zip(inside, masks, strict=True)])
    torch.testing.assert_close(metrics.pointing_game(maps, masks).float(), hits / draws, rtol=0, atol=0.04)
    torch.testing.assert_close(metrics.rank_accuracy(maps, masks).float(), ranks / draws, rtol=0, atol=0.04)


def slow_area(model, image, saliency, target, cuts, fill, inserting):
    """The area of one image, one pixel at a time."""
    order = saliency.flatten().argsort(descending=True, stable=True).tolist()
    curve = []
    for cut in cuts:
        changed = (torch.full_like(image, fill) if inserting else image.clone()).flatten(1)
        for pixel in order[:cut]:
            changed[:, pixel] = image.flatten(1)[:, pixel] if inserting else fill
        logits = model(changed.reshape(1, *image.shape))[0].double()
        curve.append(float(logits.softmax(0)[target]))
    return float(np.trapezoid(curve, np.array(cuts) / cuts[-1]))


@pytest.mark.parametrize("inserting", [False, True])
@pytest.mark.parametrize(("steps", "fill"), [(None, 0.0), (10, 0.3)])
def test_deletion_and_insertion_against_a_slow_loop(inserting, steps, fill):
    model, images = zoo.build("plain").eval(), zoo.images(4)
    maps = torch.rand(4, 12, 12, generator=torch.Generator().manual_seed(2))
    maps[1] = (maps[1] * 3).floor() + 1  # ties
    pixels = 144
    cuts = [round(k * pixels / (steps or 64)) for k in range((steps or 64) + 1)]
    with torch.no_grad():
        targets = model(images).argmax(1)
        expected = [slow_area(model, images[i], maps[i], int(targets[i]), cuts, fill, inserting) for i in range(4)]
    metric = metrics.insertion if inserting else metrics.deletion
    scores = metric(model, images, maps, steps=steps, fill=fill)
    torch.testing.assert_close(scores, torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=1e-6)
