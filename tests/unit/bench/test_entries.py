"""Names of a bench: methods, variants and controls."""

from dataclasses import replace

import pytest
import torch

import agop
from agop.bench.entries import BASELINES, Entries
from agop.errors import InputError, UnknownNameError
from agop.runs.spec import Cell
from agop.scenarios import Scenario, Split


@pytest.fixture
def entries():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 8), torch.nn.Flatten())
    images, labels = torch.randn(30, 3, 8, 8), torch.zeros(30, dtype=torch.long)
    batches = [(images, model(images).argmax(1))]
    priors = {kind: agop.fit(model, batches, progress=False) for kind in ("training", "checkpoint")}
    scenario = Scenario("s", "b", None, None, "layer4", ("x",), prior="checkpoint", black=(-2.0, -1.0, 0.0))
    return Entries(scenario, Split(images, labels, torch.rand(30, 8, 8) < 0.3), priors, Cell("s", "x", 0))


def test_names_resolve_to_methods_layers_priors_and_baselines(entries):
    assert entries.entry("vanilla").method.name == "vanilla"
    assert entries.entry("gradcam").layer == "layer4"
    assert entries.entry("gradcam@layer2").layer == "layer2"
    own = entries.entry("gradcam:layer=layer3")
    assert (own.method.layer, own.layer) == ("layer3", None)
    assert entries.entry("integrated-gradients:steps=7@black").method.steps == 7
    assert entries.entry("agop-global").prior is entries.priors["checkpoint"]
    assert entries.entry("agop-global@training").prior is entries.priors["training"]
    assert entries.entry("mean-mask").method.name == "mean-mask"
    baselines = {name: entries.entry(f"integrated-gradients@{name}").method.baseline for name in BASELINES}
    assert baselines["zero"] == 0
    assert baselines["black"].shape == (3, 8, 8)
    assert baselines["black"][:, 4, 5].tolist() == [-2, -1, 0]
    assert baselines["training"].shape == (5, 3, 8, 8)
    torch.testing.assert_close(baselines["mean"][:, 0, 0], entries.training.images.mean((0, 2, 3)))
    flat = torch.full((1, 3, 8, 8), 0.7)
    torch.testing.assert_close(baselines["blurred"](flat), flat)
    noisy = entries.training.images
    assert baselines["blurred"](noisy).shape == noisy.shape
    assert baselines["blurred"](noisy).std() < 0.6 * noisy.std()


def test_methods_with_a_prior_take_their_references_from_it(entries):
    for name in ("agop-weighted", "agop-weighted@training", "agop@layer2"):
        assert entries.entry(name).references_from_prior
    for name in ("vanilla", "expected-gradients", "gradcam@layer2"):
        assert not entries.entry(name).references_from_prior


def test_layers_are_those_of_gradcam_and_of_variants(entries):
    assert entries.layers(["gradcam", "gradcam@layer2", "vanilla"]) == {"layer4", "layer2"}
    assert entries.layers(["gradcam", "activation-norm"]) == {"layer4"}
    assert entries.entry("activation-norm").layer is None
    assert entries.entry("activation-norm@layer1").layer == "layer1"


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("vanila", UnknownNameError, "did you mean 'vanilla'"),
        ("vanilla@layer2", InputError, "has no variant 'layer2'"),
        ("integrated-gradients@white", InputError, "has no variant 'white'"),
        ("agop-global@last", InputError, "has no variant 'last'"),
    ],
)
def test_unknown_names_and_variants_raise(entries, name, error, message):
    with pytest.raises(error, match=message):
        entries.entry(name)


@pytest.mark.parametrize("baseline", ["black", None, torch.zeros(0, 3, 8, 8), torch.zeros(3, 8, 9)])
def test_invalid_baselines_raise(entries, baseline):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 8), torch.nn.Flatten())
    with pytest.raises(InputError, match="baseline"):
        agop.explain(model, entries.training.images, agop.methods.IntegratedGradients(baseline=baseline))


def test_signed_masks_give_the_same_controls_as_masks_without_signs(entries):
    signs = torch.where(torch.rand(30, 1, 1) < 0.5, -1, 1).to(torch.int8)
    signed = replace(entries, training=replace(entries.training, masks=signs * entries.training.masks))
    for name in ("centre", "mean-mask"):
        ours, expected = (each.entry(name).method.map for each in (signed, entries))
        torch.testing.assert_close(ours, expected)
