"""The network of the composite benchmark."""

import torch

from agop.networks import SmallResNet


def test_small_resnet_has_two_strides_and_accepts_larger_images():
    torch.manual_seed(0)
    model, sizes = SmallResNet().eval(), []
    for stage in (model.conv1, model.layer1, model.layer2, model.layer3):
        stage.register_forward_hook(lambda *a: sizes.append(tuple(a[2].shape[1:])))
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    assert sizes == [(16, 32, 32), (16, 32, 32), (32, 16, 16), (64, 8, 8)]
    assert model(torch.randn(2, 3, 64, 80)).shape == (2, 10)
