"""XAI-TRIS's network for 64×64 images."""

import torch

from agop.networks import CNN64


def test_cnn64_has_the_published_number_of_parameters_and_feature_maps():
    model, sizes = CNN64(), []
    assert sum(parameter.numel() for parameter in model.parameters()) == 11_452
    for conv in (model.conv1, model.conv2, model.conv3, model.conv4):
        conv.register_forward_hook(lambda *a: sizes.append(tuple(a[2].shape[1:])))
    assert model(torch.zeros(2, 1, 64, 64)).shape == (2, 2)
    assert sizes == [(4, 63, 63), (8, 30, 30), (16, 14, 14), (32, 6, 6)]
