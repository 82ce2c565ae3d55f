"""timm's models. test_models.py runs this file with timm on the path."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

import agop
import tests.interop.operators  # noqa: F401  # before torchvision, which timm imports
from agop.interop.library_preprocessing import timm_preprocessing
from agop.interop.models import preprocessing_of
from agop.model.layers import feature_maps
from agop.model.probe import probing
from tests.command import run
from tests.interop.library_models import assert_same_input, check_every_method

try:
    import timm
    from timm.data import create_transform, resolve_data_config
except Exception as error:  # a build for another torch may raise anything
    pytest.skip(f"timm can't be imported: {type(error).__name__}: {error}", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings(
    "ignore:the map of layer", "ignore::DeprecationWarning", "ignore::FutureWarning"
)
LAYERS = {
    "resnet18": "layer4",
    "vit_tiny_patch16_224": "blocks.11.norm1",
    "deit_tiny_distilled_patch16_224": "blocks.11.norm1",
    "swin_tiny_patch4_window7_224": "layers.3.blocks.1.norm2",
    "convnext_tiny": "norm_pre",
    "efficientnet_lite0": "bn2",
    "mobilenetv3_large_100": "blocks",
}


def build(name, **options):
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=5, **options).eval()


@pytest.mark.parametrize("name", LAYERS)
def test_every_method_explains_a_model_without_options(name, photo):
    described = agop.from_timm(build(name))
    assert described.layer == LAYERS[name]
    assert described.preprocessing == preprocessing_of(f"timm:{name}")
    check_every_method(described, described.images([photo]))


def test_swin_map_is_read_with_channels_last():
    model, images = build("swin_tiny_patch4_window7_224"), torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        features = model.forward_features(images)
    assert features.shape == (1, 7, 7, 768)
    with probing(model) as probe:
        maps = feature_maps(probe, images, None, "norm")
    torch.testing.assert_close(maps.activations, features.permute(0, 3, 1, 2))


@pytest.mark.parametrize("name", [*LAYERS, "vit_base_patch16_siglip_224", "efficientnet_b0", "beit_base_patch16_384"])
def test_preprocessing_equals_timm(name, photo):
    config = timm.get_pretrained_cfg(name).to_dict()
    theirs = create_transform(**resolve_data_config(pretrained_cfg=config))(Image.open(photo).convert("RGB"))
    preprocessing = timm_preprocessing(config)
    assert_same_input(preprocessing.tensor(preprocessing.picture(photo)), theirs)
    assert preprocessing_of(f"timm:{name}") == preprocessing


def test_model_created_for_another_size_keeps_that_size(photo):
    described = agop.from_timm(build("vit_tiny_patch16_224", img_size=96))
    assert described.images([photo]).shape == (1, 3, 96, 96)
    assert described.preprocessing.resize == 106  # 96 / 0.9


def test_register_tokens_are_skipped():
    """4 patches after a class token and 4 registers are 9 tokens, but not a 3×3 grid."""
    model = timm.models.VisionTransformer(
        img_size=32, patch_size=16, embed_dim=16, depth=2, num_heads=2, reg_tokens=4, num_classes=3
    ).eval()
    with pytest.warns(agop.AGOPWarning, match="is only 2×2 for 32×32"):
        agop.explain(model, torch.randn(1, 3, 32, 32), "gradcam")


def test_preprocessing_of_a_local_timm_folder(tmp_path):
    fields = build("resnet18").pretrained_cfg | {"mean": [0.1] * 3}
    config = {"architecture": "resnet18", "num_classes": 5, "pretrained_cfg": fields}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert preprocessing_of(f"timm:local-dir:{tmp_path}").mean == (0.1, 0.1, 0.1)


def test_explain_command_needs_no_preprocessing_options(photo, tmp_path):
    torch.save(build("efficientnet_lite0").state_dict(), tmp_path / "w.pth")
    options = ["--weights", "w.pth", "--num-classes", "5", "--device", "cpu"]
    for method in ("vanilla", "gradcam"):
        command = ["explain", "timm:efficientnet_lite0", photo, *options, "--method", method]
        result = run(*command, folder=tmp_path)
        assert result.returncode == 0, result.stderr
    manifest = json.loads(Path(tmp_path, "explanations", "manifest.json").read_text())
    preprocessing = agop.from_timm(build("efficientnet_lite0")).preprocessing
    assert manifest["preprocessing"] == json.loads(json.dumps(preprocessing.to_dict()))
    assert preprocessing.interpolation == "bicubic"
