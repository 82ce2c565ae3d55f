"""Properties of every registered metric and scenario."""

import pytest
import torch

from agop import metrics
from agop.bench import scenarios
from tests import zoo


def score(name, maps, masks, order=slice(None)):
    metric = metrics.get(name)
    if metric.needs_model:
        return metric(zoo.build("plain"), zoo.images(len(maps))[order], maps[order])
    return metric(maps[order], masks[order])


def batch(count=6):
    random = torch.Generator().manual_seed(3)
    masks = torch.zeros(count, 12, 12, dtype=torch.bool)
    masks[:, 2:5, 3:6] = True
    return torch.rand(count, 12, 12, generator=random), masks


@pytest.mark.parametrize("name", metrics.names())
def test_one_score_per_sample_within_the_bounds(name):
    scores = score(name, *batch())
    low, high = metrics.get(name).bounds
    assert scores.shape == (6,)
    assert scores.isfinite().all()
    assert ((scores >= low) & (scores <= high)).all()


@pytest.mark.parametrize("name", metrics.names())
def test_score_does_not_depend_on_the_other_samples(name):
    maps, masks = batch()
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    expected = score(name, maps, masks)[order]
    torch.testing.assert_close(score(name, maps, masks, order), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", metrics.names())
def test_score_does_not_depend_on_the_scale_of_the_map(name):
    maps, masks = batch()
    torch.testing.assert_close(score(name, maps * 64, masks), score(name, maps, masks), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", [n for n in metrics.names() if not metrics.get(n).needs_model])
def test_mask_is_the_best_map_and_its_complement_the_worst(name):
    maps, masks = batch()
    metric = metrics.get(name)
    assert (metric(masks.double(), masks) == metric.bounds[1]).all()
    assert (metric((~masks).double(), masks) < metric(maps, masks) + 1e-9).all()


# Options for little data, by benchmark.
FEW = {"clevr-xai": {"samples": 20, "size": 32}, "xai-tris-64": {"samples": 40}, "composite": {"samples": 200}}


@pytest.mark.parametrize("name", scenarios.names())
def test_scenario_matches_its_network(name):
    scenario = scenarios.get(name).with_options(FEW.get(scenarios.get(name).benchmark, {}))
    for background in scenario.backgrounds:
        if background in ("official", "photos"):
            continue  # read from the user's files
        for split in scenario.splits(background, seed=3):
            assert split.images.shape[-2:] == split.masks.shape[-2:]
            assert len(split.images) == len(split.labels) == len(split.masks)
            assert split.masks.flatten(1).any(1).all()
    model = scenario.network()
    assert model(split.images[:2]).shape == (2, int(split.labels.max()) + 1)
    assert scenario.layer is None or scenario.layer in dict(model.named_modules())
