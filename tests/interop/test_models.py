"""What a library's model says of itself: its preprocessing against the library's own, and GradCAM's layer."""

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
from typer.testing import CliRunner

import agop
from agop.cli.main import cli
from agop.errors import AGOPWarning, InputError, ModelError
from agop.interop.models import preprocessing_of
from agop.interop.preprocessing import transformers_preprocessing
from agop.model.layers import as_grid, token_grid
from agop.pictures.image_mask_pairs import load_image_mask_pairs
from agop.pictures.preprocessing import Preprocessing
from agop.scenarios.clevr.render.raycast import render
from agop.scenarios.clevr.render.scene import random_scene

BESIDE = Path(sys.prefix) / "beside"
HERE = Path(__file__).parent
NO_TESTS = 5  # pytest's exit code where a whole file is skipped


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    """A drawn scene, wider than high."""
    path = tmp_path_factory.mktemp("photos") / "scene.png"
    Image.fromarray(render(random_scene(1, 0), 150, 100)).save(path)
    return path


def hugging_face(name, size=32):
    """A tiny classifier of transformers with random weights."""
    transformers = pytest.importorskip("transformers")
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
    "ResNet": "resnet.encoder.stages.1.layers.1.layer.1.convolution",
    "ConvNext": "convnext.encoder.stages.1.layers.1.dwconv",
    "Dinov2WithRegisters": "dinov2_with_registers.layernorm",
}
FEW = {
    "integrated-gradients": agop.methods.IntegratedGradients(steps=3),
    "smoothgrad": agop.methods.SmoothGrad(samples=3),
}


@pytest.mark.filterwarnings("ignore:the map of layer")
@pytest.mark.parametrize("name", LAYERS)
def test_every_method_explains_a_hugging_face_folder_without_a_layer(name, photo, tmp_path):
    transformers = pytest.importorskip("transformers")
    hugging_face(name).save_pretrained(tmp_path)
    processor = transformers.ViTImageProcessorPil(size={"height": 32, "width": 32})
    processor.save_pretrained(tmp_path)
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path)
    described = agop.from_transformers(model)
    assert described.layer == LAYERS[name]
    images = described.images([photo, photo])
    assert images.shape == (2, 3, 32, 32)
    prior = agop.fit(described.model, [images], only_correct=False, progress=False)
    for method in agop.methods.names():
        maps = agop.explain(described.model, images, FEW.get(method, method), prior)
        assert maps.shape == (2, 32, 32)
        assert maps.isfinite().all()
    found, named = (agop.explain(model, images, "gradcam", target=0, layer=layer) for layer in (None, LAYERS[name]))
    assert torch.equal(found, named)


PROCESSORS = [
    ("ViT", {"size": {"height": 32, "width": 40}}),
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
]


KNOWN = [
    "Beit", "Bit", "CLIP", "ConvNext", "DeiT", "EfficientNet", "MobileNetV1", "MobileNetV2", "PoolFormer", "Pvt",
    "Siglip", "ViT",
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), PROCESSORS, ids=lambda value: value if isinstance(value, str) else "")
def test_pictures_are_prepared_as_the_hugging_face_processor_does(name, options, photo, tmp_path):
    """Through Pillow, as ours: the same numbers to rounding.

    Where a margin is odd the two may cut one pixel apart: transformers rounds down, ours as torchvision and timm do.
    """
    transformers = pytest.importorskip("transformers")
    processor = getattr(transformers, f"{name}ImageProcessorPil")(**options)
    processor.save_pretrained(tmp_path)
    theirs = processor(Image.open(photo).convert("RGB"), return_tensors="pt").pixel_values.float()
    ours = agop.from_transformers(nn.Identity(), processor).images([photo])
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=2e-6)
    assert preprocessing_of(f"hf:{tmp_path}") == agop.from_transformers(nn.Identity(), processor).preprocessing


ODD = {
    "MobileViT": {"do_flip_channel_order": True}, "Levit": {}, "Perceiver": {}, "Donut": {}, "TextNet": {},
    "Siglip2": {},
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_a_processor_that_prepares_otherwise_is_refused(name, tmp_path):
    from agop.cli.options import preprocessing

    transformers = pytest.importorskip("transformers")
    processor = getattr(transformers, f"{name}ImageProcessorPil")(**ODD[name])
    told = rf"{name}ImageProcessor.* in a way that agop does not know.*prepared by the processor"
    with pytest.raises(ModelError, match=told):
        agop.from_transformers(nn.Identity(), processor)
    processor.save_pretrained(tmp_path)
    spec = f"hf:{tmp_path}"
    with pytest.raises(ModelError, match=told):
        preprocessing_of(spec)
    with pytest.raises(ModelError, match=told):
        preprocessing(spec, "64", "0.5", None, False)
    said = preprocessing(spec, "64", "0.5", "0.25", False)
    assert said == Preprocessing((64, 64), (0.5,), (0.25,), interpolation=said.interpolation)


@pytest.mark.parametrize("name", KNOWN)
def test_a_processor_as_it_comes_is_known(name):
    transformers = pytest.importorskip("transformers")
    processor = getattr(transformers, f"{name}ImageProcessorPil")()
    found = agop.from_transformers(nn.Identity(), processor).preprocessing
    assert found == transformers_preprocessing(processor.to_dict())


def test_a_processor_that_does_not_speak_of_mean_and_std_has_none(photo, tmp_path):
    transformers = pytest.importorskip("transformers")
    processor = transformers.MobileViTImageProcessorPil(do_flip_channel_order=False)
    assert "do_normalize" not in processor.to_dict()
    found = agop.from_transformers(nn.Identity(), processor)
    assert (found.preprocessing.mean, found.preprocessing.std) == ((0.0,), (1.0,))
    theirs = processor(Image.open(photo).convert("RGB"), return_tensors="pt").pixel_values
    torch.testing.assert_close(found.images([photo]), theirs, rtol=1e-5, atol=2e-6)
    processor.save_pretrained(tmp_path)
    assert preprocessing_of(f"hf:{tmp_path}") == found.preprocessing


def test_a_processor_that_cannot_be_made_here_is_read_from_its_file(photo, tmp_path):
    pytest.importorskip("transformers")
    hugging_face("ViT").save_pretrained(tmp_path)
    said = {
        "image_processor_type": "OfAnotherDay",
        "size": 30,
        "image_mean": 0.5,
        "image_std": [0.1, 0.2, 0.3],
        "resample": 3,
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(said))
    found = preprocessing_of(f"hf:{tmp_path}")
    assert found == Preprocessing((30, 30), (0.5,), (0.1, 0.2, 0.3), resize=(30, 30), interpolation="bicubic")
    assert agop.from_transformers(nn.Identity(), said).images([photo]).shape == (1, 3, 30, 30)


def test_a_model_that_does_not_say_gets_its_size_and_a_warning(photo, tmp_path):
    pytest.importorskip("transformers")
    model = hugging_face("ViT")
    with pytest.warns(AGOPWarning, match=r"32×32 and ImageNet's mean.*processor="):
        described = agop.from_transformers(model)
    assert described.images([str(photo)]).shape == (1, 3, 32, 32)
    model.save_pretrained(tmp_path)
    with pytest.warns(AGOPWarning, match=r"no preprocessor_config\.json: 32×32"):
        assert preprocessing_of(f"hf:{tmp_path}") == described.preprocessing
    assert preprocessing_of(f"hf:{tmp_path}", warned=False) == described.preprocessing
    assert preprocessing_of(f"hf:{tmp_path}/nothing").size == (224, 224)


def run(*arguments):
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.filterwarnings("ignore:the map of layer", "ignore:the model is right on")
def test_the_commands_need_no_flags_for_a_hugging_face_folder(photo, tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    hugging_face("DeiT").save_pretrained(tmp_path / "model")
    processor = transformers.DeiTImageProcessorPil(
        size={"height": 40, "width": 40}, crop_size={"height": 32, "width": 32}
    )
    processor.save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    for folder in ("data", "masks"):
        for name in "abc":
            Path(folder, name).mkdir(parents=True)
            picture = Image.open(photo) if folder == "data" else Image.fromarray(np.eye(100, 150, dtype=np.uint8))
            picture.save(Path(folder, name, "1.png"))
    run("fit", "hf:model", "data", "--all-samples", "--device", "cpu")
    prior = agop.AGOP.load("prior.safetensors")
    said = agop.from_transformers(nn.Identity(), processor).preprocessing
    assert prior.provenance["data"]["preprocessing"] == json.loads(json.dumps(said.to_dict()))
    assert prior.diagonal.shape == (3, 32, 32)
    methods = [part for name in ("agop-weighted", "gradcam") for part in ("--method", name)]
    run("explain", "hf:model", "data", "--prior", "prior.safetensors", *methods, "--device", "cpu")
    manifest = json.loads(Path("explanations/manifest.json").read_text())
    assert manifest["preprocessing"]["resize"] == [40, 40]
    run("evaluate", "hf:model", "data", "masks", *methods[2:], "--metric", "energy", "--device", "cpu")
    with pytest.warns(AGOPWarning, match=r"resize \[40, 40\], now None.*") as caught:
        run("explain", "hf:model", "data", "--prior", "prior.safetensors", "--size", "32", "--device", "cpu")
    assert "size [" not in str(caught[0].message).replace("resize [", "")


def test_flags_win_over_what_the_model_says(tmp_path):
    from agop.cli.options import preprocessing

    transformers = pytest.importorskip("transformers")
    transformers.ViTImageProcessorPil(size={"height": 32, "width": 40}).save_pretrained(tmp_path)
    spec = f"hf:{tmp_path}"
    said = preprocessing_of(spec)
    assert preprocessing(spec, None, None, None, False) == said
    assert preprocessing(spec, "64x96", None, None, False) == Preprocessing((64, 96), said.mean, said.std)
    assert preprocessing(spec, None, "0.1", None, False).mean == (0.1,)
    gray = preprocessing(spec, None, None, "0.2", True)
    assert (gray.gray, gray.mean, gray.std, gray.size) == (True, (0.0,), (0.2,), (32, 40))
    assert preprocessing("my.module:model", None, None, None, False) == Preprocessing()


def test_a_prior_made_before_pictures_could_be_scaled_otherwise_fits_still():
    from agop.cli.options import warn_if_preprocessing_differs

    before = {"size": [8, 8], "mean": [0.5], "std": [0.5], "gray": True}
    prior = agop.AGOP(torch.ones(1, 8, 8), 3, provenance={"data": {"preprocessing": before}})
    how = Preprocessing((8, 8), (0.5,), (0.5,), gray=True)
    assert json.loads(json.dumps(how.to_dict())) == before
    warn_if_preprocessing_differs(prior, how)


def test_a_mask_is_scaled_and_cut_as_its_picture(tmp_path):
    """A picture that is its own mask: every way to cut it leaves the two alike."""
    square = np.zeros((60, 90), np.uint8)
    square[18:42, 33:57] = 255
    for folder in ("pictures", "masks"):
        (tmp_path / folder).mkdir()
        Image.fromarray(square).save(tmp_path / folder / "1.png")
    for resize in (None, 40, 24, (32, 36), (50, 20)):
        how = Preprocessing((32, 32), gray=True, resize=resize, interpolation="nearest")
        found = load_image_mask_pairs(tmp_path / "pictures", tmp_path / "masks", how)
        assert torch.equal(found.images[:, 0] > 0.5, found.masks)
        assert 0 < found.masks.sum() < 32 * 32


@pytest.mark.parametrize(
    ("more", "message"), [({"resize": 0}, "resize is 0"), ({"resize": (3, 0)}, "resize is 3x0"),
                          ({"interpolation": "cubic"}, "'cubic': give one of nearest")],
)  # fmt: skip
def test_scaling_that_cannot_be(more, message):
    with pytest.raises(InputError, match=message):
        Preprocessing(**more)


def test_what_is_no_model_of_the_library():
    with pytest.raises(ModelError, match="Identity has no pretrained_cfg"):
        agop.from_timm(nn.Identity())
    with pytest.raises(InputError, match="model is a str"):
        agop.from_transformers("google/vit")
    with pytest.raises(InputError, match="no picture was given"):
        agop.from_torchvision(nn.Identity()).images([])


class ChannelsLast(nn.Module):
    """Patches that stay a map with its channels last, as in torchvision's Swin: no convolution but the first."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.norm1, self.mix, self.norm2, self.head = nn.LayerNorm(8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.patches(x).permute(0, 2, 3, 1)
        return self.head(self.norm2(x + self.mix(self.norm1(x)).tanh()).pow(3).mean((1, 2)))


@pytest.mark.filterwarnings("ignore:the map of layer")
def test_maps_with_their_channels_last_are_read_as_what_they_are():
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


def test_a_convolution_s_map_is_never_turned():
    """16 channels of 8×5 for 64×32 pixels: read from its shape alone it could be 16×8 with 5 channels."""
    features = torch.randn(1, 16, 8, 5)
    assert as_grid(features, 1, torch.Size((64, 32)), channels_first=True) is features
    model = nn.Sequential(nn.Conv2d(3, 16, 8, stride=8, padding=(0, 4)), nn.Flatten(), nn.Linear(640, 2))
    with pytest.warns(AGOPWarning, match=r"is only 8×5"):
        agop.explain(model, torch.randn(1, 3, 64, 32), "gradcam")


def test_register_tokens_are_left_out_as_the_model_says():
    """4 patches behind 5 other tokens are 9, a grid of its own if nobody says."""
    size = torch.Size((8, 8))
    assert token_grid(9, size) == (3, 3)
    assert token_grid(9, size, prefix=5) == (2, 2)
    assert token_grid(4, size, prefix=5) == (2, 2)  # before the others are joined to them
    model = hugging_face("Dinov2WithRegisters", size=8)
    with pytest.warns(AGOPWarning, match="is only 2×2 for 8×8"):
        agop.explain(model, torch.randn(1, 3, 8, 8), "gradcam")


@pytest.mark.slow
@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_models_of(library):
    """In a process of their own: their folder is not on our path, and operators that torch lacks get stand-ins."""
    quiet = ["-q", "-rs", "-p", "no:cacheprovider", "-o", "addopts=--strict-markers"]
    done = run_beside([sys.executable, "-m", "pytest", *quiet, f"{HERE}/{library}_models.py"])
    assert done.returncode in (0, NO_TESTS), done.stdout[-4000:] + done.stderr[-2000:]
    if " passed" not in done.stdout:
        pytest.skip(done.stdout)


@pytest.mark.slow
def test_the_example_runs_with_timm(tmp_path):
    example = HERE.parents[1] / "examples" / "with_timm.py"
    code = f"import runpy; import tests.interop.operators; runpy.run_path({str(example)!r}, run_name='__main__')"
    done = run_beside([sys.executable, "-c", code], cwd=tmp_path)
    if "this example needs timm, which cannot be imported here" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert "AGOP(" in done.stdout


def run_beside(command, **more):
    if not BESIDE.is_dir():
        pytest.skip("torchvision and timm are not there: `make .venv` puts them beside the environment")
    path = [str(BESIDE), os.environ.get("PYTHONPATH", ""), str(HERE.parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path)), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **more)
