"""A cell of a bench: what is scored."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import agop
from agop import scenarios
from agop.bench.cell import run_cells
from agop.runs.gallery import Gallery
from agop.runs.spec import RunSpec
from agop.scenarios import Recipe, Scenario, Split

LAYERS = {"gradcam": "0", "gradcam@1": "1"}


def network():
    return nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 2)
    )


def splits(background, seed, masks):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(16, 3, 12, 12, generator=generator)
    split = Split(images, torch.arange(16) % 2, torch.ones(16, 12, 12, dtype=torch.bool))
    return split, split, split


@pytest.mark.filterwarnings("ignore:the map of layer")
def test_gradcam_at_a_convolution_sees_its_output_before_the_norm(tmp_path, monkeypatch):
    """The other methods are scored on a copy whose norms are folded into the convolutions."""
    recipe = Recipe(epochs=1, batch=4, snapshot_every=None)
    scenario = Scenario("folded", "own", splits, network, "0", ("plain",), recipe=recipe)
    monkeypatch.setitem(scenarios.base.registry._plugins, "folded", scenario)
    spec = RunSpec("own", ("folded",), ("plain",), 1, tuple(LAYERS), ("energy",), epochs=1, test_images=4)
    run_cells(spec, spec.cells(), tmp_path, lambda done: None)
    folder = tmp_path / "cells" / spec.cells()[0].name
    model = network()
    model.load_state_dict(load_file(folder / "checkpoint.safetensors"))
    maps, images = Gallery.load(folder).maps, splits("plain", 0, "true")[0].images[:4]
    for name, layer in LAYERS.items():
        expected = agop.explain(model.eval(), images, "gradcam", layer=layer)
        assert expected.max() > 0
        torch.testing.assert_close(torch.from_numpy(maps[name]), expected, rtol=0.01, atol=0.01 * float(expected.max()))


def test_untrained_network_has_its_initial_weights_and_a_prior_of_all_samples(tmp_path, monkeypatch):
    scenario = Scenario("untrained", "own", splits, network, "0", ("plain",), recipe=Recipe(schedule="one-cycle"))
    monkeypatch.setitem(scenarios.base.registry._plugins, "untrained", scenario)
    spec = RunSpec("own", ("untrained",), ("plain",), 1, ("agop-weighted",), ("energy",), epochs=0, test_images=4)
    run_cells(spec, spec.cells(), tmp_path, lambda done: None)
    folder = tmp_path / "cells" / spec.cells()[0].name
    torch.manual_seed(0)
    torch.testing.assert_close(load_file(folder / "checkpoint.safetensors"), dict(network().state_dict()))
    prior = agop.AGOP.load(folder / "agop.safetensors")
    assert prior.count == 16
    assert (folder / "convergence.jsonl").read_text() == ""
