"""Small networks: their sizes, and several of them in one forward pass."""

import pytest
import torch

from agop.bench.stacked import stacked
from agop.model.captured import captured
from agop.networks import LLR, CNN8by8, MLP8by8

NETWORKS = {CNN8by8: 234, MLP8by8: 2762, LLR: 128}


@pytest.mark.parametrize(("network", "parameters"), NETWORKS.items())
def test_network_has_the_published_number_of_parameters(network, parameters):
    model = network()
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 2)


@pytest.mark.parametrize("network", NETWORKS)
def test_stacked_networks_equal_each_network_alone(network):
    """The networks' own forward pass up to rounding, and a stack of one bit for bit, gradients included."""
    torch.manual_seed(0)
    models, images = [network() for _ in range(3)], torch.randn(3, 5, 1, 8, 8)
    expected = torch.stack([model(batch) for model, batch in zip(models, images, strict=True)])
    logits, gradients = logits_and_gradients(network, models, images)
    torch.testing.assert_close(logits, expected)
    for place, model in enumerate(models):
        alone, own_gradients = logits_and_gradients(network, [model], images[place : place + 1])
        assert torch.equal(alone[0], logits[place])
        for own, beside in zip(own_gradients, gradients, strict=True):
            assert torch.equal(own[0], beside[place])


def logits_and_gradients(network, models, images):
    weights = stacked(models)
    logits = network.stacked_forward(weights, images)
    return logits, torch.autograd.grad(logits.square().sum(), list(weights.values()))


def test_gradient_of_the_outputs_is_that_of_the_first_convolution():
    torch.manual_seed(0)
    models, images = [CNN8by8() for _ in range(2)], torch.randn(2, 5, 1, 8, 8)
    outputs = torch.zeros(2, *CNN8by8.patch_outputs, 5).requires_grad_()
    logits = CNN8by8.stacked_forward(stacked(models), images, outputs)
    (deltas,) = torch.autograd.grad(logits[..., 0].sum(), outputs)
    for model, batch, own in zip(models, images, deltas, strict=True):
        with captured([model.get_submodule(CNN8by8.patch_layer)]) as maps:
            alone = model(batch)
        (expected,) = torch.autograd.grad(alone[:, 0].sum(), list(maps.values()))
        # Other positions, in another order: the products over all positions of each sample are the same.
        grams = torch.einsum("dpn,epn->nde", own, own)
        torch.testing.assert_close(grams, torch.einsum("ndhw,nehw->nde", expected, expected))
