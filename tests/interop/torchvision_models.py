"""torchvision's own models; run by test_models.py with torchvision on the path."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import agop
import tests.interop.operators  # noqa: F401  # before torchvision
from agop.cli.main import cli
from agop.interop.models import preprocessing_of
from agop.scenarios.clevr.render.images import render
from agop.scenarios.clevr.render.scene import random_scene

try:
    import torchvision
except Exception as error:  # a build for another torch raises what it likes
    pytest.skip(f"torchvision cannot be imported here: {type(error).__name__}: {error}", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings(
    "ignore:the map of layer", "ignore::DeprecationWarning", "ignore::FutureWarning"
)
LAYERS = {
    "resnet18": "layer4.1.conv2",
    "vit_b_16": "encoder.layers.encoder_layer_11.ln_1",
    "efficientnet_b0": "features.8.0",
    "swin_t": "norm",
    "mobilenet_v3_small": "features.12.0",
    "convnext_tiny": "features.7.2.block.0",
}
FEW = {
    "integrated-gradients": agop.methods.IntegratedGradients(steps=2),
    "smoothgrad": agop.methods.SmoothGrad(samples=2),
}


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    path = tmp_path_factory.mktemp("photos") / "scene.png"
    Image.fromarray(render(random_scene(1, 0), 480, 320)).save(path)
    return path


def made(name):
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, num_classes=5).eval()
    if name == "vit_b_16":
        nn.init.normal_(model.heads.head.weight)  # it begins as 0: nothing would depend on anything
    return model


@pytest.mark.parametrize("name", LAYERS)
def test_a_model_is_explained_with_nothing_said(name, photo):
    described = agop.from_torchvision(made(name))
    assert described.layer == LAYERS[name]
    images = described.images([photo])
    prior = agop.fit(described.model, [images], only_correct=False, progress=False)
    for method in agop.methods.names():
        maps = agop.explain(described.model, images, FEW.get(method, method), prior)
        assert maps.shape == (1, 224, 224)
        assert maps.isfinite().all()
        assert method.startswith("gradcam") or maps.max() > 0


@pytest.mark.parametrize("name", [*LAYERS, "resnet50", "inception_v3", "vit_l_16"])
def test_pictures_are_prepared_as_torchvision_does(name, photo):
    """Both scale with Pillow: the same numbers to rounding. By name its default weights."""
    for weights in torchvision.models.get_model_weights(name):
        described = agop.from_torchvision(nn.Identity(), weights)
        theirs = weights.transforms()(Image.open(photo).convert("RGB"))
        torch.testing.assert_close(described.images([photo])[0], theirs, rtol=1e-5, atol=2e-6)
        assert agop.from_torchvision(nn.Identity(), str(weights)).preprocessing == described.preprocessing
    default = torchvision.models.get_model_weights(name).DEFAULT
    assert preprocessing_of(f"torchvision:{name}") == agop.from_torchvision(nn.Identity(), default).preprocessing


def test_without_weights_it_is_as_torchvision_s_defaults():
    weights = torchvision.models.ResNet18_Weights.IMAGENET1K_V1
    assert (
        agop.from_torchvision(made("resnet18")).preprocessing
        == agop.from_torchvision(nn.Identity(), weights).preprocessing
    )
    small = torchvision.models.VisionTransformer(32, 8, 1, 2, 16, 16)
    assert agop.from_torchvision(small).preprocessing.size == (32, 32)


def test_the_commands_need_no_flags(photo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(made("mobilenet_v3_small").state_dict(), "w.pth")
    options = ["--weights", "w.pth", "--classes", "5", "--device", "cpu", "--method", "gradcam"]
    command = ["explain", "torchvision:mobilenet_v3_small", str(photo), *options]
    done = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert json.loads(Path("explanations/manifest.json").read_text())["preprocessing"]["resize"] == 256


def test_a_name_that_is_none_is_told_when_it_is_loaded():
    assert preprocessing_of("torchvision:resnet81").size == (224, 224)
