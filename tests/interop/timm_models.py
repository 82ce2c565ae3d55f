"""timm's own models; run by test_models.py with timm on the path."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import agop
import tests.interop.operators  # noqa: F401  # before torchvision, which timm imports
from agop.cli.main import cli
from agop.interop.models import preprocessing_of
from agop.interop.preprocessing import timm_preprocessing
from agop.model.layers import feature_maps
from agop.model.probe import probing
from agop.scenarios.clevr.render.images import render
from agop.scenarios.clevr.render.scene import random_scene

try:
    import timm
    from timm.data import create_transform, resolve_data_config
except Exception as error:  # a build for another torch raises what it likes
    pytest.skip(f"timm cannot be imported here: {type(error).__name__}: {error}", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings(
    "ignore:the map of layer", "ignore::DeprecationWarning", "ignore::FutureWarning"
)
LAYERS = {
    "resnet18": "layer4.1.conv2",
    "vit_tiny_patch16_224": "blocks.11.norm1",
    "deit_tiny_distilled_patch16_224": "blocks.11.norm1",
    "swin_tiny_patch4_window7_224": "layers.3.blocks.1.norm2",
    "convnext_tiny": "stages.3.blocks.2.conv_dw",
    "efficientnet_lite0": "conv_head",
    "mobilenetv3_large_100": "blocks.6.0.conv",
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


def made(name, **more):
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=5, **more).eval()


@pytest.mark.parametrize("name", LAYERS)
def test_a_model_is_explained_with_nothing_said(name, photo):
    described = agop.from_timm(made(name))
    assert described.layer == LAYERS[name]
    images = described.images([photo])
    prior = agop.fit(described.model, [images], only_correct=False, progress=False)
    for method in agop.methods.names():
        maps = agop.explain(described.model, images, FEW.get(method, method), prior)
        assert maps.shape == (1, *described.preprocessing.size)
        assert maps.isfinite().all()
        assert method.startswith("gradcam") or maps.max() > 0


def test_a_swin_s_map_with_its_channels_last_is_read_as_one():
    model, images = made("swin_tiny_patch4_window7_224"), torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        features = model.forward_features(images)
    assert features.shape == (1, 7, 7, 768)
    with probing(model) as probe:
        found = feature_maps(probe, images, None, "norm")
    torch.testing.assert_close(found.activations, features.permute(0, 3, 1, 2))


@pytest.mark.parametrize("name", [*LAYERS, "vit_base_patch16_siglip_224", "efficientnet_b0", "beit_base_patch16_384"])
def test_pictures_are_prepared_as_timm_does(name, photo):
    """Both scale with Pillow: the same numbers to rounding. By name the same as by model."""
    said = timm.get_pretrained_cfg(name).to_dict()
    theirs = create_transform(**resolve_data_config(pretrained_cfg=said))(Image.open(photo).convert("RGB"))
    how = timm_preprocessing(said)
    torch.testing.assert_close(how.tensor(how.picture(photo)), theirs, rtol=1e-5, atol=2e-6)
    assert preprocessing_of(f"timm:{name}") == how


def test_a_model_says_what_its_name_says():
    for name in ("resnet18", "vit_tiny_patch16_224"):
        assert agop.from_timm(made(name)).preprocessing == preprocessing_of(f"timm:{name}")


def test_a_model_made_for_another_size(photo):
    described = agop.from_timm(made("vit_tiny_patch16_224", img_size=96))
    assert described.images([photo]).shape == (1, 3, 96, 96)
    assert described.preprocessing.resize == 106  # 96 of 0.9


def test_registers_are_counted_as_the_model_says():
    """32 pixels in patches of 16 are 4, behind a class token and 4 registers 9: no grid of 3×3."""
    model = timm.models.VisionTransformer(
        img_size=32, patch_size=16, embed_dim=16, depth=2, num_heads=2, reg_tokens=4, num_classes=3
    ).eval()
    with pytest.warns(agop.AGOPWarning, match="is only 2×2 for 32×32"):
        agop.explain(model, torch.randn(1, 3, 32, 32), "gradcam")


def test_a_folder_of_timm_s_own_form(tmp_path):
    model = made("resnet18")
    (tmp_path / "m").mkdir()
    config = {
        "architecture": "resnet18",
        "num_classes": 5,
        "pretrained_cfg": model.pretrained_cfg | {"mean": [0.1] * 3},
    }
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    assert preprocessing_of(f"timm:local-dir:{tmp_path / 'm'}").mean == (0.1, 0.1, 0.1)


def test_the_commands_need_no_flags(photo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(made("efficientnet_lite0").state_dict(), "w.pth")
    options = ["--weights", "w.pth", "--classes", "5", "--device", "cpu"]
    for method in ("vanilla", "gradcam"):
        command = ["explain", "timm:efficientnet_lite0", str(photo), *options, "--method", method]
        done = CliRunner().invoke(cli, command, catch_exceptions=False)
        assert done.exit_code == 0, done.output
    manifest = json.loads(Path("explanations/manifest.json").read_text())
    said = agop.from_timm(made("efficientnet_lite0")).preprocessing
    assert manifest["preprocessing"] == json.loads(json.dumps(said.to_dict()))
    assert said.interpolation == "bicubic"
