"""The paper's network for XAI-TRIS."""

import torch

from agop.networks import CNN8by8


def test_cnn8by8_has_the_papers_feature_maps():
    model, sizes = CNN8by8(), []
    for conv in (model.conv1, model.conv2, model.conv3, model.conv4):
        conv.register_forward_hook(lambda *a: sizes.append(tuple(a[2].shape[-2:])))
    model(torch.zeros(2, 1, 8, 8))
    assert sizes == [(9, 9), (5, 5), (3, 3), (2, 2)]
