"""Layers from the top down, and random weights."""

import torch
from torch import nn

from agop.model.randomised import layers_from_the_top, randomise
from tests import zoo


class HeadFirst(nn.Module):
    """The head is registered before the body, and the model has a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.head, self.scale, self.body = nn.Linear(4, 3), nn.Parameter(torch.arange(3.0)), nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.head(self.body(x * self.scale[:, None, None]).mean((2, 3)))


def test_layers_are_in_the_order_of_their_calls():
    assert layers_from_the_top(HeadFirst(), zoo.images(1)) == ["head", "body", ""]
    names = layers_from_the_top(zoo.build("attention"), zoo.images(1))
    assert names[:2] == ["head", "norm"]
    assert names[-2:] == ["patch", ""]
    # In an attention, the output's weights are used without a call of their module.
    assert names.index("block.self_attn.out_proj") == names.index("block.self_attn") - 1


def test_parameters_are_initialised_again_or_permuted():
    models = [HeadFirst(), HeadFirst()]
    before = models[0].body.weight.clone()
    state = torch.get_rng_state()
    for model in models:
        randomise(model.body, 0)
    assert not torch.allclose(models[0].body.weight, before)
    assert torch.equal(models[0].body.weight, models[1].body.weight)
    assert torch.equal(torch.get_rng_state(), state)
    head = models[0].head.weight.clone()
    randomise(models[0], 1)
    assert sorted(models[0].scale.tolist()) == [0, 1, 2]
    assert models[0].scale.tolist() != [0, 1, 2]
    assert torch.equal(models[0].head.weight, head)


class ResetsBias(nn.Linear):
    def reset_parameters(self):
        nn.init.uniform_(self.bias)


def test_weights_that_reset_parameters_does_not_set_are_permuted():
    layer = ResetsBias(8, 8)
    nn.init.normal_(layer.weight)
    before = layer.weight.detach().clone()
    randomise(layer, 0)
    assert not torch.equal(layer.weight, before)
    assert torch.equal(layer.weight.flatten().sort().values, before.flatten().sort().values)
