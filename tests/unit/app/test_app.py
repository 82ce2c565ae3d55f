"""The app without its server: models of the command line, uploads, results, the page and the download."""

import base64
import io
import json
import re
import sys
import warnings
import zipfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import agop
from agop.app import example
from agop.app.page import MOST_BYTES, MOST_FILES, Page, page_of, read_upload, write_zip
from agop.bench.scenarios import xai_tris
from agop.cli.explain import load_session
from agop.errors import AGOPError, AGOPWarning, FileError, InputError, ModelError
from agop.images.overlays import COLOUR_MAPS, Colouring, heat, top_value
from agop.images.preprocessing import FORMATS
from tests.image_files import POSTSCRIPT, png_header


@pytest.fixture(scope="module")
def session():
    """The session of the embedded example."""
    return load_session(**example.ARGUMENTS)


# The model of the command line


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": "nowhere:net"}, ModelError, "nowhere"),
        ({"model": "torchvision:resnet18"}, ModelError, "doesn't download weights for torchvision:resnet18"),
        ({"model": "hf:microsoft/resnet-50"}, ModelError, "isn't a local folder, and the app doesn't download"),
        ({"weights": Path("gone.pth")}, FileError, "gone.pth can't be read: No such file"),
        ({"prior": example.WEIGHTS}, FileError, "not an AGOP file"),
        ({"size": "16"}, AGOPError, "the prior is for images of shape"),
        ({"gray": False, "prior": None}, ModelError, "channels"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*random weights")
def test_unusable_arguments_raise(change, error, message):
    with pytest.raises(error, match=message):
        load_session(**example.ARGUMENTS | change)


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


@pytest.mark.slow
def test_code_in_a_hugging_face_folder_never_runs(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4], depths=[1]).save_pretrained(tmp_path)
    torch.save({"fc.weight": Bomb()}, "pytorch_model.bin")
    with pytest.raises(ModelError, match="Weights only load failed"):
        load_session(f"hf:{tmp_path}", size="32", mean="0", std="1")
    assert not (tmp_path / "exploded").exists()


# The embedded example


def test_example_is_small_and_its_prior_matches_its_network():
    files = [path for path in example.FOLDER.iterdir() if path.suffix in (".safetensors", ".png", ".txt")]
    assert len(files) == 6
    assert sum(path.stat().st_size for path in files) < 300_000
    prior = agop.AGOP.load(example.PRIOR)
    assert "training-accumulated" in repr(prior)
    assert prior.layer == "conv1"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prior.check(example.network(), torch.zeros(1, 1, 8, 8))


def test_example_is_classified_correctly_and_explained_by_its_shape(session):
    outcome = session.explain(example.images(), ["random", "agop-weighted"])
    assert not outcome.skipped
    test = xai_tris("linear")[2]
    for result in outcome.results:
        label = "TL".index(result.path.name[0])
        assert result.predicted == label
        mask = test.masks[test.labels == label][0]
        saliency = result.maps["agop-weighted"]
        assert float((saliency * mask).sum() / saliency.sum()) > 3 * float(mask.float().mean())


@pytest.mark.slow
def test_script_makes_the_same_example(tmp_path, monkeypatch):
    """Up to a few percent: over 40 epochs, float32 rounding drifts apart between CPUs."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "docs")
    import make_app_example

    make_app_example.make(tmp_path)
    for path in (example.WEIGHTS, example.PRIOR):
        stored, remade = load_file(path), load_file(tmp_path / path.name)
        for name, values in stored.items():
            assert float((remade[name] - values).norm() / values.norm()) < 0.1
    assert [path.name for path in example.images()] == sorted(path.name for path in tmp_path.glob("*.png"))
    for path in example.images():
        assert np.array_equal(np.asarray(Image.open(path)), np.asarray(Image.open(tmp_path / path.name)))


# Uploads

RGB, GRAY = agop.Preprocessing((16, 16)), agop.Preprocessing((16, 16), gray=True)


def gradient(side=16, dtype=np.uint8):
    return np.linspace(0, np.iinfo(dtype).max, side * side).reshape(side, side).astype(dtype)


@pytest.mark.parametrize("kind", ["png", "jpg", "gif", "bmp", "webp", "tif", "ppm"])
def test_every_format_is_read(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    Image.fromarray(np.stack([gradient()] * 3, axis=-1)).save(path)
    pixels = np.asarray(read_upload(path, RGB)).astype(int)
    assert np.abs(pixels[..., 0] - gradient()).max() <= 8


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("preprocessing", [RGB, GRAY], ids=["rgb", "gray"])
def test_every_mode_keeps_its_brightness(tmp_path, mode, preprocessing):
    path = tmp_path / "a.tif"
    if mode == "I;16":
        Image.fromarray(gradient(dtype=np.uint16)).save(path)
    else:
        Image.fromarray(gradient()).convert("RGB").convert(mode).save(path)
    pixels = np.asarray(read_upload(path, preprocessing)).astype(int).reshape(16, 16, -1)[..., 0]
    quarters, expected = (values.reshape(4, -1).mean(axis=1) for values in (pixels, gradient()))
    assert np.abs(quarters - expected).max() <= 16  # dithering to one bit keeps the mean only


def file_bytes(pixels, kind):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


NOISE = file_bytes(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8), "PNG")
FLOATS = file_bytes(np.linspace(0, 1, 256).reshape(16, 16).astype(np.float32), "TIFF")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"hello, this is a note", "can't be read as an image: unknown format, use BMP", id="text"),
        pytest.param(b"", "is empty: choose another", id="empty"),
        pytest.param(POSTSCRIPT, "can't be read as an image: unknown format", id="postscript"),
        pytest.param(NOISE[: len(NOISE) // 2], "can't be read as an image: .*truncated", id="truncated"),
        pytest.param(FLOATS, "pixels of mode F, not colours: save it", id="floats"),
        pytest.param(png_header(8000, 7000), "56 million pixels, the limit is 50 million", id="large"),
        pytest.param(png_header(10_000, 10_000), "100 million pixels, the limit is 50", id="bomb Pillow warns about"),
        pytest.param(png_header(60_000, 60_000), "too many pixels, make it smaller", id="bomb Pillow rejects"),
        pytest.param(b"\x89PNG\r\n\x1a\n" + b"\0" * MOST_BYTES, "20.0 MB, the limit is 20 MB", id="many bytes"),
    ],
)
def test_unusable_file_raises_with_its_name_only(tmp_path, content, message):
    path = tmp_path / "holiday.png"
    path.write_bytes(content)
    with pytest.raises(FileError, match=message) as raised:
        read_upload(path, RGB)
    assert str(raised.value).startswith("holiday.png: ")
    assert str(tmp_path) not in str(raised.value)
    assert "\n" not in str(raised.value)


# Results


def test_methods_that_need_a_prior_are_offered_only_with_one(session):
    assert session.offered() == agop.methods.runnable(session.explainer.prior)
    assert {"agop-weighted", "agop-global"} <= set(session.offered())
    with pytest.warns(AGOPWarning, match="random weights"):
        without = load_session(**example.ARGUMENTS | {"prior": None})
    kinds = {name: agop.methods.get(name) for name in session.offered()}
    # The example's prior has image moments, from which references are drawn.
    alone = [name for name, kind in kinds.items() if not kind.needs_prior and not kind.needs_references]
    assert without.offered() == alone
    for name, message in (("agop-weighted", "there is no AGOP file"), ("expected-gradients", "")):
        with pytest.raises(InputError, match=f"{name} can't run, {message}"):
            without.explain(example.images(), ["vanilla", name])


def test_unknown_methods_and_no_methods_raise(session):
    with pytest.raises(InputError, match="no method selected"):
        session.explain(example.images(), [])
    with pytest.raises(AGOPError, match="magic"):
        session.explain(example.images(), ["magic"])


def test_results_equal_those_of_explain(session):
    path = example.images()[0]
    outcome = session.explain([path], session.offered())
    [result] = outcome.results
    preprocessing = session.explainer.preprocessing
    image = preprocessing.tensor(preprocessing.picture(path))[None]
    model, prior = example.network(), agop.AGOP.load(example.PRIOR)
    with torch.no_grad():
        torch.testing.assert_close(result.probabilities.float(), model(image).softmax(1)[0])
    assert result.predicted == int(result.probabilities.argmax())
    for name, saliency in result.maps.items():
        layer = "conv3" if name in ("gradcam", "gradcam++", "layercam", "normgrad", "agop-layer") else None
        with pytest.warns(agop.AGOPWarning) if layer else nullcontext():
            expected = agop.explain(model, image, name, prior, layer=layer)[0]
        torch.testing.assert_close(saliency, expected.float())
    assert any("conv3" in note for note in outcome.notes)


def test_too_many_files_are_cut_with_a_message(session):
    outcome = session.explain([example.images()[0]] * (MOST_FILES + 2), ["vanilla"])
    assert len(outcome.results) == MOST_FILES
    assert outcome.skipped == [f"{MOST_FILES + 2} files are too many: only the first {MOST_FILES} are explained"]


class Flat(torch.nn.Module):
    """A linear model with one logit, and no layer that has a map."""

    logits = 1

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(64, self.logits)

    def forward(self, x):
        return self.fc(x.flatten(1))


def own_session(model):
    change = {"model": f"{__name__}:{model}", "prior": None, "layer": None, "names": None}
    with pytest.warns(AGOPWarning, match="random weights"):
        return load_session(**example.ARGUMENTS | change)


def test_failing_method_is_skipped_and_one_logit_means_two_classes(tmp_path):
    session = own_session("Flat")
    assert session.classes == 2
    outcome = session.explain(example.images(), ["vanilla", "gradcam"])
    assert len(outcome.skipped) == 1
    assert outcome.skipped[0].startswith("gradcam: the model has no convolution")
    for result in outcome.results:
        assert float(result.probabilities.sum()) == pytest.approx(1)
        assert result.predicted == int(result.probabilities.argmax())
    with zipfile.ZipFile(write_zip(outcome, session.about, tmp_path)) as archive:
        assert json.loads(archive.read("explanations/manifest.json"))["methods"].keys() == {"vanilla"}


def test_download_is_the_folder_that_explain_writes_without_bad_files(session, tmp_path):
    (tmp_path / "note.png").write_text("a note")
    files = [example.images()[0], tmp_path / "note.png", example.images()[0], example.images()[1]]
    outcome = session.explain(files, ["vanilla", "agop-weighted"])
    assert outcome.skipped == [f"note.png: can't be read as an image: unknown format, use {', '.join(FORMATS)}"]
    with zipfile.ZipFile(write_zip(outcome, session.about, tmp_path)) as archive:
        archive.extractall(tmp_path / "out")
    folder = tmp_path / "out" / "explanations"
    assert {path.name for path in (folder / "overlays").iterdir()} == {"L-1.png", "L-1-2.png", files[3].name}
    assert {path.name for path in folder.iterdir()} == {"overlays", "maps.safetensors", "manifest.json", "index.html"}
    maps = load_file(folder / "maps.safetensors")
    assert maps.keys() == {"vanilla", "agop-weighted"}
    torch.testing.assert_close(maps["vanilla"][1], outcome.results[1].maps["vanilla"])
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [entry["file"] for entry in manifest["images"]] == ["L-1.png", "L-1.png", files[3].name]


# The page


def images_of(page):
    """Images (H,W,3) of a card by their captions."""
    pairs = re.findall(r"<figcaption>(.*?)</figcaption><img src=\"data:image/png;base64,(.*?)\"", page)
    return {name: np.asarray(Image.open(io.BytesIO(base64.b64decode(content)))) for name, content in pairs}


def test_each_map_of_a_card_has_its_own_scale(session):
    outcome = session.explain(example.images()[:1], ["random", "vanilla"])
    page = page_of(outcome, Colouring(percentile=60, colours="jet"))
    images = images_of(page)
    for name, saliency in outcome.results[0].maps.items():
        top = top_value(saliency.double().numpy(), 60)
        assert np.array_equal(images[name], heat(saliency.double().numpy(), top, "jet"))
    assert "<span>0\u00a0%</span><span>50\u00a0%</span><span>100\u00a0%</span>" in page
    for colour in COLOUR_MAPS["jet"]:
        assert "rgb({},{},{})".format(*colour) in page
    assert "is predicted to be</span> L <span>" in page
    assert page.index("<td>L</td>") < page.index("<td>T</td>")


def test_maps_of_a_card_on_the_common_scale_and_the_colour_bar_ends_at_the_largest_share(session):
    outcome = session.explain(example.images()[:1], ["random", "vanilla", "agop-weighted"])
    maps = {name: saliency.double().numpy() for name, saliency in outcome.results[0].maps.items()}
    parts = {name: saliency / saliency.sum() for name, saliency in maps.items()}
    top = max(part.max() for part in parts.values())
    assert min(part.max() for part in parts.values()) < top / 2  # a scale per map would differ
    page = page_of(outcome, Colouring("common", percentile=100))
    assert f"{100 * top:.2g}\u00a0%" in page
    images = images_of(page)
    assert list(images) == ["image", "random", "vanilla", "agop-weighted"]
    assert np.array_equal(images["image"], outcome.results[0].picture)
    for name, part in parts.items():
        assert np.array_equal(images[name], heat(np.sqrt(part / top), 1.0))


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>.png", "${alert(1)}.png", "{{value}}.png"])
def test_file_names_are_escaped(session, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(example.images()[0].read_bytes())
    (tmp_path / f"bad{name}").write_text("a note")
    page = page_of(session.explain([path, tmp_path / f"bad{name}"], ["vanilla"]))
    for text in (name, "<img src=x", "${", "{{"):
        assert text not in page


def explain_on(page, *colours):
    return page.explain([str(example.images()[0])], ["vanilla"], *colours, lambda *_: None)


def test_controls_set_the_colours_of_cards_and_download(session, tmp_path):
    html, download = explain_on(Page(session, tmp_path), "common", 90, 0.5, "gray")
    colouring = Colouring("common", 90, 0.5, "gray")
    assert html == page_of(session.explain(example.images()[:1], ["vanilla"]), colouring)
    with zipfile.ZipFile(download["value"]) as archive:
        manifest = json.loads(archive.read("explanations/manifest.json"))
    assert Colouring(**manifest["colouring"]) == colouring


class Exits(Flat):
    """Ends the process in its forward pass, for all but black images."""

    logits = 2

    def forward(self, x):
        if x.any():
            sys.exit("bye")
        return super().forward(x)


class ExitsBackward(Flat):
    def forward(self, x):
        if x.requires_grad:
            x.register_hook(lambda _: sys.exit("bye"))
        return super().forward(x)


@pytest.mark.parametrize(
    ("model", "scale", "message"),
    [
        ("Exits", "own", "sys.exit(&#39;bye&#39;)"),
        ("ExitsBackward", "own", "bye"),
        ("Flat", "x", "no scale is named"),
    ],
)
def test_model_that_calls_sys_exit_and_invalid_colours_give_an_error_on_the_page(tmp_path, model, scale, message):
    answer, _ = explain_on(Page(own_session(model), tmp_path), scale, 98, 1, "inferno")
    assert "Error" in answer
    assert message in answer
    assert "agop-card" not in answer
