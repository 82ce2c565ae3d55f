"""torchvision's models. test_models.py runs this file with torchvision on the path."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

import agop
import tests.interop.operators  # noqa: F401  # before torchvision
from agop.interop.models import preprocessing_of
from tests.command import run
from tests.interop.library_models import assert_same_input, check_every_method

try:
    import torchvision
except Exception as error:  # a build for another torch may raise anything
    pytest.skip(f"torchvision can't be imported: {type(error).__name__}: {error}", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings(
    "ignore:the map of layer", "ignore::DeprecationWarning", "ignore::FutureWarning"
)
LAYERS = {
    "resnet18": "layer4",
    "vit_b_16": "encoder.layers.encoder_layer_11.ln_1",
    "efficientnet_b0": "features",
    "swin_t": "norm",
    "mobilenet_v3_small": "features",
    "convnext_tiny": "features",
}
SIDES = {"vit_b_16": 64}  # 16 tokens instead of 196: a minute less


def build(name):
    torch.manual_seed(0)
    size = {"image_size": SIDES[name]} if name in SIDES else {}
    model = torchvision.models.get_model(name, num_classes=5, **size).eval()
    if name == "vit_b_16":
        nn.init.normal_(model.heads.head.weight)  # initialised with zeros: all gradients would be zero
    return model


@pytest.mark.parametrize("name", LAYERS)
def test_every_method_explains_a_model_without_options(name, photo):
    described = agop.from_torchvision(build(name))
    side = SIDES.get(name, 224)
    assert described.preprocessing.size == (side, side)
    assert described.layer == LAYERS[name]
    check_every_method(described, described.images([photo]))


@pytest.mark.parametrize("name", [*LAYERS, "resnet50", "inception_v3", "vit_l_16"])
def test_preprocessing_equals_torchvision(name, photo):
    for weights in torchvision.models.get_model_weights(name):
        described = agop.from_torchvision(nn.Identity(), weights)
        assert_same_input(described.images([photo])[0], weights.transforms()(Image.open(photo).convert("RGB")))
        assert agop.from_torchvision(nn.Identity(), str(weights)).preprocessing == described.preprocessing
    default = torchvision.models.get_model_weights(name).DEFAULT
    assert preprocessing_of(f"torchvision:{name}") == agop.from_torchvision(nn.Identity(), default).preprocessing


def test_preprocessing_without_weights_is_torchvision_default():
    weights = torchvision.models.ResNet18_Weights.IMAGENET1K_V1
    expected = agop.from_torchvision(nn.Identity(), weights).preprocessing
    assert agop.from_torchvision(build("resnet18")).preprocessing == expected
    small = torchvision.models.VisionTransformer(32, 8, 1, 2, 16, 16)
    assert agop.from_torchvision(small).preprocessing.size == (32, 32)


def test_explain_command_needs_no_preprocessing_options(photo, tmp_path):
    torch.save(build("mobilenet_v3_small").state_dict(), tmp_path / "w.pth")
    options = ["--weights", "w.pth", "--num-classes", "5", "--device", "cpu", "--method", "gradcam"]
    result = run("explain", "torchvision:mobilenet_v3_small", photo, *options, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    manifest = json.loads(Path(tmp_path, "explanations", "manifest.json").read_text())
    assert manifest["preprocessing"]["resize"] == 256


def test_unknown_name_gets_the_default_preprocessing():
    """Loading the model raises the error."""
    assert preprocessing_of("torchvision:resnet81").size == (224, 224)
