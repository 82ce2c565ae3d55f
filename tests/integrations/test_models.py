"""from_transformers, from_timm and from_torchvision: preprocessing compared with the library's, and GradCAM's layer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import agop
from agop import Preprocessing
from agop.errors import AGOPWarning, InputError, ModelError
from agop.integrations.models import preprocessing_of
from tests.command import run
from tests.integrations.library_models import assert_same_input, check_every_method

BESIDE = Path(sys.prefix) / "beside"
HERE = Path(__file__).parent
NO_TESTS = 5  # pytest's exit code if a whole file is skipped


def hugging_face(transformers, name, size=32):
    """A tiny transformers classifier with random weights."""
    torch.manual_seed(0)
    tokens = {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
        "image_size": size, "patch_size": 4, "num_labels": 3,
    }  # fmt: skip
    maps = {"num_labels": 3, "hidden_sizes": [8, 12], "depths": [1, 2]}
    swin = {
        "image_size": size, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4,
        "num_labels": 3,
    }  # fmt: skip
    options = {
        "ViT": tokens, "DeiT": tokens, "Dinov2WithRegisters": tokens | {"num_register_tokens": 4},
        "ResNet": maps | {"embedding_size": 8, "layer_type": "basic"}, "ConvNext": maps | {"num_stages": 2},
        "Swin": swin,
    }[name]  # fmt: skip
    config = getattr(transformers, f"{name}Config")(**options)
    return getattr(transformers, f"{name}ForImageClassification")(config).eval()


LAYERS = {
    "ViT": "vit.layers.1.layernorm_before",
    "DeiT": "deit.layers.1.layernorm_before",
    "Swin": "swin.layernorm",
    "ResNet": "resnet.encoder.stages.1",
    "ConvNext": "convnext.encoder.stages.1",
    "Dinov2WithRegisters": "dinov2_with_registers.layernorm",
}


@pytest.mark.filterwarnings("ignore:the map of layer")
@pytest.mark.parametrize("name", LAYERS)
def test_every_method_explains_a_hugging_face_folder_without_options(name, transformers, photo, tmp_path):
    hugging_face(transformers, name).save_pretrained(tmp_path)
    transformers.ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path)
    described = agop.integrations.from_transformers(model)
    assert described.layer == LAYERS[name]
    images = described.images([photo, photo])
    assert images.shape == (2, 3, 32, 32)
    check_every_method(described, images)
    default, named = (agop.explain(model, images, "gradcam", target=0, layer=layer) for layer in (None, LAYERS[name]))
    assert torch.equal(default, named)


PROCESSORS = [
    ("ViT", {"size": {"height": 32, "width": 40}}),
    ("ViT", {"size": {"height": 32, "width": 40}, "image_mean": [0.4], "image_std": [0.2]}),  # of gray images
    ("ViT", {"do_rescale": False, "do_normalize": False, "size": {"height": 20, "width": 20}}),
    ("ViT", {"rescale_factor": 1 / 127.5, "image_mean": [1.0, 1.0, 1.0], "size": {"height": 20, "width": 20}}),
    ("DeiT", {"size": {"height": 40, "width": 40}, "crop_size": {"height": 32, "width": 32}}),
    ("ConvNext", {"size": {"shortest_edge": 28}, "crop_pct": 0.875}),
    ("ConvNext", {"size": {"shortest_edge": 384}}),
    ("MobileNetV2", {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}}),
    ("MobileNetV2", {"size": {"shortest_edge": 20}, "crop_size": {"height": 32, "width": 24}}),
    ("PoolFormer", {"size": {"shortest_edge": 36}, "crop_size": {"height": 36, "width": 36}}),
    ("EfficientNet", {"size": {"height": 40, "width": 40}, "rescale_offset": True, "rescale_factor": 1 / 127.5}),
    ("Beit", {"size": {"height": 40, "width": 40}, "crop_size": {"height": 32, "width": 32}, "do_center_crop": True}),
    ("CLIP", {"size": {"shortest_edge": 36}, "crop_size": {"height": 32, "width": 32}}),
    ("MobileViT", {"do_flip_channel_order": False}),  # doesn't normalise, and has no field that says so
    *((name, {}) for name in ("Beit", "Bit", "CLIP", "ConvNext", "DeiT", "EfficientNet", "MobileNetV1", "MobileNetV2",
                              "PoolFormer", "Pvt", "Siglip", "ViT")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), PROCESSORS, ids=lambda value: value if isinstance(value, str) else "")
def test_preprocessing_equals_the_hugging_face_processor(name, options, transformers, photo, tmp_path):
    """All margins here are even: transformers rounds odd ones down, agop rounds like torchvision and timm."""
    processor = getattr(transformers, f"{name}ImageProcessorPil")(**options)
    processor.save_pretrained(tmp_path)
    mode = "L" if len(options.get("image_mean", ())) == 1 else "RGB"
    theirs = processor(Image.open(photo).convert(mode), return_tensors="pt").pixel_values.float()
    described = agop.integrations.from_transformers(nn.Identity(), processor)
    assert_same_input(described.images([photo]), theirs)
    assert preprocessing_of(f"hf:{tmp_path}") == described.preprocessing


UNSUPPORTED = {
    "MobileViT": {"do_flip_channel_order": True}, "Levit": {}, "Perceiver": {},
    "Donut": {"size": {"height": 64, "width": 48}}, "TextNet": {}, "Siglip2": {},
}  # fmt: skip


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_processor_raises(name, transformers, tmp_path):
    processor = getattr(transformers, f"{name}ImageProcessorPil")(**UNSUPPORTED[name])
    message = rf"agop can't reproduce the preprocessing of {name}ImageProcessor.*with the processor yourself"
    with pytest.raises(ModelError, match=message):
        agop.integrations.from_transformers(nn.Identity(), processor)
    processor.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=message):
        preprocessing_of(f"hf:{tmp_path}")
    assert preprocessing_of(f"hf:{tmp_path}", strict=False).size == (224, 224)


def test_processor_of_an_unknown_class_is_read_from_its_file(transformers, photo, tmp_path):
    hugging_face(transformers, "ViT").save_pretrained(tmp_path)
    fields = {
        "image_processor_type": "Unknown", "size": 30, "image_mean": 0.5, "image_std": [0.1, 0.2, 0.3], "resample": 3,
    }  # fmt: skip
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(fields))
    expected = Preprocessing((30, 30), (0.5,), (0.1, 0.2, 0.3), resize=(30, 30), interpolation="bicubic")
    assert preprocessing_of(f"hf:{tmp_path}") == expected
    assert agop.integrations.from_transformers(nn.Identity(), fields).images([photo]).shape == (1, 3, 30, 30)


def test_model_without_processor_keeps_its_size_and_warns(transformers, photo, tmp_path):
    model = hugging_face(transformers, "ViT")
    with pytest.warns(AGOPWarning, match=r"32×32 and ImageNet's mean.*processor="):
        described = agop.integrations.from_transformers(model)
    assert described.images([str(photo)]).shape == (1, 3, 32, 32)
    model.save_pretrained(tmp_path)
    with pytest.warns(AGOPWarning, match=r"no preprocessor_config\.json: assuming 32×32"):
        assert preprocessing_of(f"hf:{tmp_path}") == described.preprocessing
    assert preprocessing_of(f"hf:{tmp_path}", strict=False) == described.preprocessing
    assert preprocessing_of(f"hf:{tmp_path}/nothing").size == (224, 224)


def test_commands_need_no_options_for_a_hugging_face_folder(transformers, photo, tmp_path):
    model = hugging_face(transformers, "DeiT")
    model.config.id2label = {0: "a", 1: "tabby cat", 2: "c"}
    model.save_pretrained(tmp_path / "model")
    processor = transformers.DeiTImageProcessorPil(
        size={"height": 40, "width": 40}, crop_size={"height": 32, "width": 32}
    )
    processor.save_pretrained(tmp_path / "model")
    mask = Image.fromarray(np.eye(320, 480, dtype=np.uint8))
    for folder, image in (("data", Image.open(photo)), ("masks", mask)):
        for name in "abc":
            (tmp_path / folder / name).mkdir(parents=True)
            image.save(tmp_path / folder / name / "1.png")

    def agop_command(*arguments):
        result = run(*arguments, "--device", "cpu", folder=tmp_path)
        assert result.returncode == 0, result.stderr
        return result.stderr

    agop_command("fit", "hf:model", "data", "--all-samples")
    prior = agop.AGOP.load(tmp_path / "prior.safetensors")
    expected = agop.integrations.from_transformers(nn.Identity(), processor).preprocessing
    assert prior.provenance.data.preprocessing == json.loads(json.dumps(expected.to_dict()))
    assert prior.diagonal.shape == (3, 32, 32)
    methods = [part for name in ("agop-weighted", "gradcam") for part in ("--method", name)]
    agop_command("explain", "hf:model", "data", "--prior", "prior.safetensors", *methods)
    manifest = json.loads((tmp_path / "explanations" / "manifest.json").read_text())
    assert manifest["preprocessing"]["resize"] == [40, 40]
    agop_command("explain", "hf:model", "data", "--target", "tabby cat", "--out", "named")
    manifest = json.loads((tmp_path / "named" / "manifest.json").read_text())
    assert manifest["classes"] == ["a", "tabby cat", "c"]
    assert [(entry["target"], entry["label"]) for entry in manifest["images"]] == [(1, 0), (1, None), (1, 2)]
    agop_command("evaluate", "hf:model", "data", "masks", *methods[2:], "--metric", "energy")
    warning = agop_command("explain", "hf:model", "data", "--prior", "prior.safetensors", "--size", "32")
    assert "resize [40, 40], now None" in warning
    assert "size [" not in warning.replace("resize [", "")


def test_argument_that_is_not_a_library_model_raises():
    with pytest.raises(ModelError, match="Identity has no pretrained_cfg"):
        agop.integrations.from_timm(nn.Identity())
    with pytest.raises(InputError, match="model is a str"):
        agop.integrations.from_transformers("google/vit")
    with pytest.raises(InputError, match="no image"):
        agop.integrations.from_torchvision(nn.Identity()).images([])


class ChannelsLast(nn.Module):
    """A map with channels last, as in torchvision's Swin: only the first layer is a convolution."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.norm1, self.mix, self.norm2, self.head = nn.LayerNorm(8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.patches(x).permute(0, 2, 3, 1)
        return self.head(self.norm2(x + self.mix(self.norm1(x)).tanh()).pow(3).mean((1, 2)))


@pytest.mark.filterwarnings("ignore:the map of layer")
def test_gradcam_reads_maps_with_channels_last():
    model, images = ChannelsLast(), torch.randn(4, 3, 24, 32, generator=torch.Generator().manual_seed(0))
    maps = agop.explain(model, images, "gradcam")
    assert torch.equal(maps, agop.explain(model, images, "gradcam", layer="norm2"))
    hidden = model.patches(images).permute(0, 2, 3, 1)
    hidden = model.norm2(hidden + model.mix(model.norm1(hidden)).tanh()).detach().requires_grad_()
    logits = model.head(hidden.pow(3).mean((1, 2)))
    (gradient,) = torch.autograd.grad(logits.max(1).values.sum(), hidden)
    coarse = (gradient.mean((1, 2), keepdim=True) * hidden).sum(3).relu().detach()
    slow = nn.functional.interpolate(coarse[:, None], (24, 32), mode="bilinear")[:, 0]
    torch.testing.assert_close(maps, slow)


def test_convolution_map_keeps_its_axes():
    """16 channels of 8×5 for 64×32 pixels. By shape alone it could be 16×8 with 5 channels."""
    model = nn.Sequential(nn.Conv2d(3, 16, 8, stride=8, padding=(0, 4)), nn.Flatten(), nn.Linear(640, 2))
    with pytest.warns(AGOPWarning, match=r"is only 8×5"):
        agop.explain(model, torch.randn(1, 3, 64, 32), "gradcam")


def test_register_tokens_are_skipped(transformers):
    """4 patches after 5 prefix tokens are 9 tokens, but not a 3×3 grid."""
    model = hugging_face(transformers, "Dinov2WithRegisters", size=8)
    with pytest.warns(AGOPWarning, match="is only 2×2 for 8×8"):
        agop.explain(model, torch.randn(1, 3, 8, 8), "gradcam")


@pytest.mark.slow
def test_models_of_timm_and_torchvision_in_a_process_with_them():
    """They aren't on this process's path, and may need placeholder operators."""
    quiet = ["-q", "-rs", "-p", "no:cacheprovider", "-o", "addopts=--strict-markers"]
    process = run_beside([sys.executable, "-m", "pytest", *quiet, f"{HERE}/beside_models.py"])
    assert process.returncode in (0, NO_TESTS), process.stdout[-4000:] + process.stderr[-2000:]
    if " passed" not in process.stdout:
        pytest.skip(process.stdout)


@pytest.mark.slow
def test_timm_example_runs(tmp_path):
    example = HERE.parents[1] / "examples" / "with_timm.py"
    code = f"import runpy; import tests.integrations.operators; runpy.run_path({str(example)!r}, run_name='__main__')"
    process = run_beside([sys.executable, "-c", code], cwd=tmp_path)
    if "this example needs timm, which can't be imported" in process.stderr:
        pytest.skip(process.stderr.splitlines()[-1])
    assert process.returncode == 0, process.stderr
    assert "AGOP(" in process.stdout


def run_beside(command, **more):
    if not BESIDE.is_dir():
        pytest.skip("torchvision and timm aren't installed: run `make .venv/dev`")
    path = [str(BESIDE), os.environ.get("PYTHONPATH", ""), str(HERE.parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path)), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **more)
