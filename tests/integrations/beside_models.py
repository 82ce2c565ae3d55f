"""Models of timm and torchvision. test_models.py runs this file with both on the path."""

import json

import pytest
import torch
from PIL import Image
from torch import nn

import agop
import tests.integrations.operators  # noqa: F401  # before torchvision, which timm imports
from agop.bench import ResNet18
from agop.integrations import from_timm, from_torchvision
from agop.integrations.models import preprocessing_of
from tests.command import run
from tests.integrations.library_models import assert_same_input, check_every_method

try:
    import timm
    import torchvision
    from timm.data import create_transform, resolve_data_config
except Exception as error:  # a build for another torch may raise anything
    pytest.skip(f"timm or torchvision can't be imported: {type(error).__name__}: {error}", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings(
    "ignore:the map of layer", "ignore::DeprecationWarning", "ignore::FutureWarning"
)
LAYERS = {
    "timm:resnet18": "layer4",
    "timm:vit_tiny_patch16_224": "blocks.11.norm1",
    "timm:deit_tiny_distilled_patch16_224": "blocks.11.norm1",
    "timm:swin_tiny_patch4_window7_224": "layers.3.blocks.1.norm2",
    "timm:convnext_tiny": "norm_pre",
    "timm:efficientnet_lite0": "bn2",
    "timm:mobilenetv3_large_100": "blocks",
    "torchvision:resnet18": "layer4",
    "torchvision:vit_b_16": "encoder.layers.encoder_layer_11.ln_1",
    "torchvision:efficientnet_b0": "features",
    "torchvision:swin_t": "norm",
    "torchvision:mobilenet_v3_small": "features",
    "torchvision:convnext_tiny": "features",
}
SIDES = {"torchvision:vit_b_16": 64}  # 16 tokens instead of 196: a minute less
OF_TIMM, OF_TORCHVISION = (
    [spec.partition(":")[2] for spec in LAYERS if spec.startswith(library)] for library in ("timm", "torchvision")
)


def build(spec, **options):
    torch.manual_seed(0)
    library, _, name = spec.partition(":")
    if library == "timm":
        return timm.create_model(name, num_classes=5, **options).eval()
    size = {"image_size": SIDES[spec]} if spec in SIDES else {}
    model = torchvision.models.get_model(name, num_classes=5, **size).eval()
    if name == "vit_b_16":
        nn.init.normal_(model.heads.head.weight)  # initialised with zeros: all gradients would be zero
    return model


@pytest.mark.parametrize("spec", LAYERS)
def test_every_method_explains_a_model_without_options(spec, photo):
    described = (from_timm if spec.startswith("timm") else from_torchvision)(build(spec))
    side = SIDES.get(spec, 224)
    assert described.preprocessing.size == (side, side)
    assert described.layer == LAYERS[spec]
    check_every_method(described, described.images([photo]))


@pytest.mark.parametrize("name", [*OF_TIMM, "vit_base_patch16_siglip_224", "efficientnet_b0", "beit_base_patch16_384"])
def test_preprocessing_equals_timm(name, photo):
    config = timm.get_pretrained_cfg(name).to_dict()
    theirs = create_transform(**resolve_data_config(pretrained_cfg=config))(Image.open(photo).convert("RGB"))
    preprocessing = preprocessing_of(f"timm:{name}")
    assert_same_input(preprocessing.tensor(preprocessing.picture(photo)), theirs)
    if name in OF_TIMM:
        assert from_timm(build(f"timm:{name}")).preprocessing == preprocessing


@pytest.mark.parametrize("name", [*OF_TORCHVISION, "resnet50", "inception_v3", "vit_l_16"])
def test_preprocessing_equals_torchvision(name, photo):
    for weights in torchvision.models.get_model_weights(name):
        described = from_torchvision(nn.Identity(), weights)
        assert_same_input(described.images([photo])[0], weights.transforms()(Image.open(photo).convert("RGB")))
        assert from_torchvision(nn.Identity(), str(weights)).preprocessing == described.preprocessing
    default = torchvision.models.get_model_weights(name).DEFAULT
    assert preprocessing_of(f"torchvision:{name}") == from_torchvision(nn.Identity(), default).preprocessing


@pytest.mark.parametrize("classes", [(), (7,)])
def test_torchvision_s_resnet_with_our_weights_has_our_maps(classes, tmp_path):
    ours, images = ResNet18(*classes), torch.randn(2, 3, 64, 64)
    torch.save(ours.state_dict(), tmp_path / "w.pth")
    theirs = agop.load_model("torchvision:resnet18", tmp_path / "w.pth", *classes)
    torch.testing.assert_close(agop.explain(theirs, images, "gradcam"), agop.explain(ours, images, "gradcam"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [("timm:resnet18", "--weights FILE"),
     ("torchvision:resnet19", r"is named 'resnet19': did you mean 'resnet18'\? known: resnet18, .*, \d+ more$")],
)  # fmt: skip
def test_missing_weights_and_unknown_names_raise(spec, message):
    with pytest.raises(agop.AGOPError, match=message):
        agop.load_model(spec)


def test_preprocessing_without_weights_is_torchvision_default():
    weights = torchvision.models.ResNet18_Weights.IMAGENET1K_V1
    expected = from_torchvision(nn.Identity(), weights).preprocessing
    assert from_torchvision(build("torchvision:resnet18")).preprocessing == expected
    small = torchvision.models.VisionTransformer(32, 8, 1, 2, 16, 16)
    assert from_torchvision(small).preprocessing.size == (32, 32)
    assert preprocessing_of("torchvision:resnet81").size == (224, 224)  # loading the model raises the error


def test_timm_model_created_for_another_size_keeps_that_size(photo):
    described = from_timm(build("timm:vit_tiny_patch16_224", img_size=96))
    assert described.images([photo]).shape == (1, 3, 96, 96)
    assert described.preprocessing.resize == 106  # 96 / 0.9


def test_preprocessing_of_a_local_timm_folder(tmp_path):
    fields = build("timm:resnet18").pretrained_cfg | {"mean": [0.1] * 3}
    config = {"architecture": "resnet18", "num_classes": 5, "pretrained_cfg": fields}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert preprocessing_of(f"timm:local-dir:{tmp_path}").mean == (0.1, 0.1, 0.1)


@pytest.mark.parametrize("spec", ["timm:efficientnet_lite0", "torchvision:mobilenet_v3_small"])
def test_explain_command_needs_no_preprocessing_options(spec, photo, tmp_path):
    torch.save(build(spec).state_dict(), tmp_path / "w.pth")
    options = ["--weights", "w.pth", "--num-classes", "5", "--device", "cpu", "--method", "gradcam"]
    result = run("explain", spec, photo, *options, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    manifest = json.loads((tmp_path / "explanations" / "manifest.json").read_text())
    assert manifest["preprocessing"] == json.loads(json.dumps(preprocessing_of(spec).to_dict()))


def test_a_segmentation_network_of_torchvision():
    torch.manual_seed(0)
    build = torchvision.models.segmentation.lraspp_mobilenet_v3_large
    model, images = build(weights=None, weights_backbone=None, num_classes=4), torch.rand(2, 3, 64, 64)
    everywhere = agop.outputs.segment(1, torch.ones(64, 64))
    gradients = agop.input_gradients(model, images, output=everywhere)
    assert model.training
    torch.testing.assert_close(gradients.logits[:, 0], model.eval()(images)["out"][:, 1].mean((1, 2)).detach())
    assert (gradients.values.flatten(1).norm(dim=1) > 0).all()
