"""The page behind the page: uploads, models, answers, the folder to download, and who may ask."""

import asyncio
import base64
import io
import json
import re
import subprocess
import sys
import zipfile
import zlib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import agop
from agop.app import cards, example
from agop.app.example import make
from agop.app.fields import Fields
from agop.app.folder import zipped
from agop.app.guard import Guard, is_local
from agop.app.page import forget
from agop.app.session import Session
from agop.app.uploads import FORMATS, MOST_BYTES, MOST_FILES, prepared
from agop.cli.app import app, load
from agop.errors import AGOPError, FileError, InputError, ModelError
from agop.model.fingerprint import fingerprint
from agop.pictures.heat import heat
from agop.pictures.preprocessing import Preprocessing
from agop.scenarios import xai_tris

RGB = Preprocessing((16, 16))
GREY = Preprocessing((16, 16), gray=True)


@pytest.fixture(scope="module")
def session():
    return Session(load, example.fields())


def gradient(side=16, dtype=np.uint8):
    return np.linspace(0, np.iinfo(dtype).max, side * side).reshape(side, side).astype(dtype)


# The example


def test_the_example_is_small_and_its_agop_file_is_of_its_network():
    files = [path for path in example.FOLDER.iterdir() if path.suffix in (".safetensors", ".png", ".txt")]
    assert len(files) == 6
    assert sum(path.stat().st_size for path in files) < 300_000
    prior = agop.AGOP.load(example.PRIOR)
    assert prior.provenance.model == fingerprint(example.network())
    assert prior.provenance.kind == "training-accumulated"


def test_the_example_is_told_right_and_explained_by_its_shape(session):
    outcome = session.explain(example.pictures(), ["random", "agop-weighted"])
    assert not outcome.refused
    test = xai_tris("linear")[2]
    for result in outcome.results:
        shape = result.explained.path.name[0]
        assert result.likeliest[0][0] == shape
        mask = test.masks[test.labels == "TL".index(shape)][0]
        saliency = result.explained.maps["agop-weighted"]
        chance = float(mask.float().mean())
        assert float((saliency * mask).sum() / saliency.sum()) > 3 * chance


@pytest.mark.slow
def test_the_example_is_made_by_its_script(tmp_path):
    make.make(tmp_path)
    for made in (example.WEIGHTS, example.PRIOR):
        there, again = load_file(made), load_file(tmp_path / made.name)
        for name, values in there.items():
            torch.testing.assert_close(again[name], values, rtol=1e-3, atol=1e-4)
    assert [path.name for path in example.pictures()] == sorted(path.name for path in tmp_path.glob("*.png"))
    for path in example.pictures():
        assert np.array_equal(np.asarray(Image.open(path)), np.asarray(Image.open(tmp_path / path.name)))


# Uploads


@pytest.mark.parametrize("kind", ["png", "jpg", "gif", "bmp", "webp", "tif", "ppm"])
def test_pictures_of_every_format_are_read(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    Image.fromarray(np.stack([gradient()] * 3, axis=-1)).save(path)
    found = np.asarray(prepared(path, RGB)).astype(int)
    assert np.abs(found[..., 0] - gradient()).max() <= 8


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("how", [RGB, GREY], ids=["rgb", "grey"])
def test_pictures_of_every_mode_keep_their_brightness(tmp_path, mode, how):
    path = tmp_path / "a.tif"
    if mode == "I;16":
        Image.fromarray(gradient(dtype=np.uint16)).save(path)
    else:
        Image.fromarray(gradient()).convert("RGB").convert(mode).save(path)
    found = np.asarray(prepared(path, how)).astype(int).reshape(16, 16, -1)[..., 0]
    quarters, expected = (values.reshape(4, -1).mean(axis=1) for values in (found, gradient()))
    assert np.abs(quarters - expected).max() <= 16  # one bit a pixel is as bright on the whole
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.tif"]


def test_a_16_bit_png_is_not_cut_to_white(tmp_path):
    Image.fromarray(gradient(dtype=np.uint16)).save(tmp_path / "a.png")
    assert np.abs(np.asarray(prepared(tmp_path / "a.png", GREY)).astype(int) - gradient()).max() <= 1


def test_a_palette_with_transparency_is_read(tmp_path):
    picture = Image.fromarray(gradient()).convert("P")
    picture.save(tmp_path / "a.png", transparency=bytes(range(256)))
    assert prepared(tmp_path / "a.png", RGB).size == (16, 16)


def test_of_a_moving_picture_the_first_frame_is_read(tmp_path):
    frames = [Image.new("L", (16, 16), value) for value in (200, 10, 90)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert np.asarray(prepared(tmp_path / "a.gif", GREY)).mean() == 200


def test_a_turned_photograph_stands_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90° clockwise to see it
    left = np.zeros((16, 16), np.uint8)
    left[:, :8] = 255
    Image.fromarray(left).save(tmp_path / "a.png", exif=exif)
    found = np.asarray(prepared(tmp_path / "a.png", GREY))
    assert found[:8].mean() > 200
    assert found[8:].mean() < 50


def png_header(width, height):
    """A PNG file that says it is so large, and has next to nothing in it."""

    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 0, 0, 0, 0])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def truncated():
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()[: len(buffer.getvalue()) // 2]


def deep():
    buffer = io.BytesIO()
    Image.fromarray(np.linspace(0, 1, 256).reshape(16, 16).astype(np.float32)).save(buffer, "TIFF")
    return buffer.getvalue()


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param(b"hello, this is a note", "not a picture", id="text"),
        pytest.param(b"", "is empty: choose another", id="empty"),
        pytest.param(POSTSCRIPT, "not a picture", id="postscript"),
        pytest.param(truncated(), "cannot be read as a picture: .*truncated", id="truncated"),
        pytest.param(deep(), "numbers of kind F, not colours: save it", id="floats"),
        pytest.param(png_header(8000, 7000), "56 million pixels, the most is 50 million", id="large"),
        pytest.param(png_header(10_000, 10_000), "more than 50 million pixels", id="a bomb Pillow warns of"),
        pytest.param(png_header(60_000, 60_000), "more than 50 million pixels", id="a bomb Pillow refuses"),
        pytest.param(b"\x89PNG\r\n\x1a\n" + b"\0" * MOST_BYTES, "20.0 MB, the most is 20 MB", id="many bytes"),
    ],
)
def test_what_is_no_sensible_picture_is_refused_by_its_name(tmp_path, content, told):
    path = tmp_path / "holiday.png"
    path.write_bytes(content)
    with pytest.raises(FileError, match=told) as refused:
        prepared(path, RGB)
    assert str(refused.value).startswith("holiday.png: it ")
    assert str(tmp_path) not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_large_picture_is_refused_before_it_is_decoded(tmp_path):
    """A few bytes that stand for 100 megapixels: decoding them would take that memory."""
    path = tmp_path / "a.png"
    Image.new("1", (10_000, 10_000)).save(path)
    code = f"""
import resource, sys
from pathlib import Path
from agop.app.uploads import prepared
from agop.pictures.preprocessing import Preprocessing
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    prepared(Path({str(path)!r}), Preprocessing((16, 16)))
except OSError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000, error)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("True a.png: it has more than 50 million pixels")


def test_only_formats_that_pillow_reads_by_itself_are_taken():
    assert not set(FORMATS) & {"EPS", "WMF", "IPTC"}


# Models


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"model": ""}, ModelError, "no model is named"),
        ({"model": "nowhere:net"}, ModelError, "no module named nowhere"),
        ({"model": "torchvision:resnet18"}, ModelError, "would be downloaded: give its weights"),
        ({"model": "timm:resnet18"}, ModelError, "would be downloaded"),
        ({"model": "hf:microsoft/resnet-50"}, ModelError, "not a folder on this machine, and nothing is downloaded"),
        ({"weights": "weights.pth"}, FileError, "not a .safetensors file, the only kind taken here"),
        ({"weights": "gone.safetensors"}, FileError, "is not a file on this machine"),
        ({"prior": "prior.pt"}, FileError, "not a .safetensors file, the only kind taken here"),
        ({"prior": str(example.WEIGHTS)}, FileError, "not an AGOP file"),
        ({"size": "16"}, AGOPError, "the prior is for images of shape"),
        ({"size": "large"}, InputError, "give 224 or HEIGHTxWIDTH"),
        ({"gray": False, "prior": ""}, ModelError, "channels"),
        ({"mean": "grey"}, InputError, "give numbers"),
        ({"classes": "many"}, InputError, "give a number above 0"),
        ({"names": "gone.txt"}, FileError, "cannot be read"),
    ],
)
def test_what_cannot_be_loaded_is_told_and_leaves_what_was_loaded(session, change, error, told):
    before = session.loaded
    with pytest.raises(error, match=told):
        session.load(replace(example.fields(), **change))
    assert session.loaded is before


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


@pytest.mark.parametrize("name", ["weights.pth", "weights.pt", "weights.bin", "weights.safetensors"])
@pytest.mark.parametrize("field", ["weights", "prior"])
def test_a_pickle_is_never_read(session, tmp_path, monkeypatch, name, field):
    monkeypatch.chdir(tmp_path)
    torch.save({"fc.weight": Bomb()}, name)
    with pytest.raises(AGOPError):
        session.load(replace(example.fields(), **{field: str(tmp_path / name)}))
    assert not (tmp_path / "exploded").exists()


def test_a_folder_of_pickled_weights_is_refused(session, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match=r"holds no model\.safetensors"):
        session.load(Fields(f"hf:{tmp_path}"))


def test_weights_from_a_file_and_notes_about_an_agop_file_of_other_weights(tmp_path):
    torch.manual_seed(0)
    save_file(agop.networks.CNN8by8().state_dict(), tmp_path / "w.safetensors")
    other = Session(load, example.fields())
    spec = "agop.networks:CNN8by8"
    notes = other.load(replace(example.fields(), model=spec, weights=str(tmp_path / "w.safetensors")))
    assert len(notes) == 1
    assert "other weights" in notes[0]
    assert not other.load(replace(example.fields(), model=spec, weights=str(example.WEIGHTS)))
    assert fingerprint(other.loaded.model) == fingerprint(example.network())


def test_names_come_from_a_file_or_from_the_folders_of_the_agop_file(session, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("a\nb\nc\n")
    with pytest.raises(InputError, match="names 3 classes, the model has 2"):
        session.load(replace(example.fields(), names=str(names)))
    prior = agop.AGOP.load(example.PRIOR)
    prior.save(tmp_path / "prior.safetensors", classes=["tee", "ell"])
    bare = replace(example.fields(), names="")
    assert load(replace(bare, prior=str(tmp_path / "prior.safetensors"))).name(1) == "ell"
    assert load(bare).name(1) == "class 1"
    assert load(example.fields()).name(1) == "L"


# Answers


def test_methods_that_need_an_agop_file_are_offered_only_with_one(session):
    assert session.loaded.offered() == agop.methods.names()
    without = Session(load, replace(example.fields(), prior=""))
    left = set(agop.methods.names()) - set(without.loaded.offered())
    assert left == {"agop-weighted", "agop-global"}
    with pytest.raises(InputError, match="agop-weighted needs an AGOP file"):
        without.explain(example.pictures(), ["vanilla", "agop-weighted"])
    with pytest.raises(InputError, match="no method is chosen"):
        without.explain(example.pictures(), [])
    with pytest.raises(AGOPError, match="no method is named"):
        without.explain(example.pictures(), ["magic"])


def test_answers_are_those_of_explain(session):
    path = example.pictures()[0]
    outcome = session.explain([path], agop.methods.names())
    [result] = outcome.results
    how = session.loaded.preprocessing
    image = how.tensor(how.picture(path))[None]
    model, prior = example.network(), agop.AGOP.load(example.PRIOR)
    with torch.no_grad():
        likely = model(image).softmax(1)[0]
    assert [name for name, _ in result.likeliest] == ["TL"[index] for index in likely.argsort(descending=True)]
    assert result.likeliest[0][1] == pytest.approx(float(likely.max()), abs=1e-5)
    for name, saliency in result.explained.maps.items():
        layer = "conv3" if name.startswith("gradcam") else None
        with pytest.warns(agop.AGOPWarning) if layer else nullcontext():
            expected = agop.explain(model, image, name, prior, layer=layer)[0]
        torch.testing.assert_close(saliency, expected.float())
    assert any("conv3" in note for note in outcome.notes)


def test_good_pictures_are_explained_beside_bad_ones_in_their_order(session, tmp_path):
    (tmp_path / "note.png").write_text("a note")
    files = [example.pictures()[0], tmp_path / "note.png", *example.pictures()[1:]]
    outcome = session.explain(files, ["vanilla"])
    assert [result.explained.path.name for result in outcome.results] == [p.name for p in example.pictures()]
    assert outcome.refused == [f"note.png: it is not a picture ({', '.join(FORMATS)})"]


def test_too_many_pictures_are_cut_with_a_line(session):
    outcome = session.explain([example.pictures()[0]] * (MOST_FILES + 2), ["vanilla"])
    assert len(outcome.results) == MOST_FILES
    assert outcome.refused == [f"{MOST_FILES + 2} files are too many: only the first {MOST_FILES} are explained"]


class Flat(torch.nn.Module):
    """A linear model, without a layer that has a map."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(64, 1)

    def forward(self, x):
        return self.fc(x.flatten(1))


def test_a_method_that_cannot_explain_the_model_is_left_out_and_one_logit_is_two_classes(tmp_path):
    flat = Session(load, replace(example.fields(), model=f"{__name__}:Flat", prior="", layer="", names=""))
    outcome = flat.explain(example.pictures(), ["vanilla", "gradcam"])
    assert len(outcome.refused) == 1
    assert outcome.refused[0].startswith("gradcam: the model has no convolution")
    assert outcome.methods == ["vanilla"]
    for result in outcome.results:
        assert sum(value for _, value in result.likeliest) == pytest.approx(1)
        assert result.explained.predicted == int(result.likeliest[0][0].removeprefix("class "))
    with zipfile.ZipFile(zipped(outcome, tmp_path)) as archive:
        assert json.loads(archive.read("explanations/manifest.json"))["methods"].keys() == {"vanilla"}


def test_a_page_that_is_being_closed_answers_no_more():
    closing = Session(load, example.fields())
    closing.stopping.set()
    with pytest.raises(InputError, match="being closed"):
        closing.explain(example.pictures(), ["vanilla"])


def test_the_download_is_the_folder_that_explain_writes(session, tmp_path):
    (tmp_path / "note.png").write_text("a note")
    twice = [example.pictures()[0], example.pictures()[0], tmp_path / "note.png"]
    outcome = session.explain(twice, ["vanilla", "agop-weighted"])
    with zipfile.ZipFile(zipped(outcome, tmp_path)) as archive:
        archive.extractall(tmp_path / "out")
    folder = tmp_path / "out" / "explanations"
    names = {path.name for path in folder.iterdir()}
    assert names == {"L-1.png", "L-1-2.png", "maps.safetensors", "manifest.json"}
    maps = load_file(folder / "maps.safetensors")
    assert maps.keys() == {"vanilla", "agop-weighted"}
    torch.testing.assert_close(maps["vanilla"][1], torch.Tensor(outcome.results[1].explained.maps["vanilla"]))
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["images"][0]["file"] == "L-1.png"
    assert manifest["classes"] == ["T", "L"]
    assert manifest["skipped"] == outcome.refused
    assert str(tmp_path) not in (folder / "manifest.json").read_text()
    assert sorted(path.suffix for path in tmp_path.rglob("*") if path.is_file() and path.parent != folder) == [
        ".png", ".zip",
    ]  # fmt: skip


def test_a_card_names_every_method_and_the_colour_bar_ends_at_the_largest_share(session):
    outcome = session.explain(example.pictures()[:1], ["vanilla", "agop-weighted"])
    page = cards.page_of(outcome)
    assert page.count("<figure>") == 3
    assert page.index("vanilla</figcaption>") < page.index("agop-weighted</figcaption>")
    maps = [saliency / saliency.sum() for saliency in outcome.results[0].explained.maps.values()]
    assert f"{100 * max(float(saliency.max()) for saliency in maps):.2g}\u00a0%" in page
    assert " %" not in page  # a number and its sign stay in one line


def pictured(page):
    """The pictures (H,W,3) of a card by their captions."""
    found = re.findall(r"<figcaption>(.*?)</figcaption><img src=\"data:image/png;base64,(.*?)\"", page)
    return {name: np.asarray(Image.open(io.BytesIO(base64.b64decode(content)))) for name, content in found}


def test_the_maps_of_a_card_are_on_one_scale_each_pixel_by_its_share(session):
    outcome = session.explain(example.pictures()[:1], ["random", "vanilla", "agop-weighted"])
    maps = {name: found.double().numpy() for name, found in outcome.results[0].explained.maps.items()}
    parts = {name: saliency / saliency.sum() for name, saliency in maps.items()}
    top = max(part.max() for part in parts.values())
    assert min(part.max() for part in parts.values()) < top / 2  # a scale of its own would be another
    shown = pictured(cards.page_of(outcome))
    assert np.array_equal(shown.pop("picture"), outcome.results[0].explained.picture)
    assert shown.keys() == parts.keys()
    for name, part in parts.items():
        assert np.array_equal(shown[name], heat(np.sqrt(part / top), 1.0))


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>.png", "${alert(1)}.png", "{{value}}.png"])
def test_a_files_name_is_text_on_the_page(session, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(example.pictures()[0].read_bytes())
    (tmp_path / f"bad{name}").write_text("a note")
    page = cards.page_of(session.explain([path, tmp_path / f"bad{name}"], ["vanilla"]))
    assert name not in page
    assert "<img src=x" not in page
    assert "${" not in page
    assert "{{" not in page


def test_what_was_uploaded_long_ago_is_forgotten(tmp_path):
    for name in ("examples", "old"):
        (tmp_path / name).mkdir()
    forget(tmp_path, 100)
    assert (tmp_path / "old").exists()
    forget(tmp_path, -100)
    assert [path.name for path in tmp_path.iterdir()] == ["examples"]


# Who may ask


async def _answering(scope, receive, send):
    body = await receive() if scope["method"] == "POST" else {"body": b""}
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body["body"]})


def asked(guard, path, method="GET", body=b"", **headers):
    """The status, headers and body a guard answers with."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    headers = {"host": "127.0.0.1:7860", **headers}
    scope = {"type": "http", "method": method, "path": path,
             "headers": [(name.encode(), value.encode()) for name, value in headers.items()]}  # fmt: skip
    asyncio.run(guard(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


@pytest.fixture
def guard(tmp_path):
    return Guard(_answering, "127.0.0.1", tmp_path)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1", "[::1]"])
def test_local_addresses_are_known(host):
    assert is_local(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "192.168.1.5", "::", "example.org", "127.0.0.1.example.org", "localhost.example.org", ""]
)
def test_other_addresses_are_not_local(host):
    assert not is_local(host)


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost:8000", "[::1]:7860", "localhost"])
def test_a_local_page_answers_to_its_own_names(guard, host):
    status, headers, _ = asked(guard, "/", host=host)
    assert status == 200
    assert b"default-src 'self'" in headers[b"content-security-policy"]
    assert b"frame-ancestors 'none'" in headers[b"content-security-policy"]
    assert asked(guard, "/gradio_api/queue/join", "POST", b"{}", host=host, origin=f"http://{host}")[0] == 200


@pytest.mark.parametrize("host", ["evil.example:7860", "127.0.0.1.evil.example", "", "192.168.1.5:7860"])
def test_another_name_for_this_machine_is_refused(guard, host):
    """DNS rebinding: the evil page's own name, made to lead here."""
    assert asked(guard, "/", host=host)[0] == 403
    assert asked(guard, "/gradio_api/queue/join", "POST", b"{}", host=host, origin=f"http://{host}")[0] == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "file://", "http://localhost:7860"]
)
@pytest.mark.parametrize("path", ["/gradio_api/queue/join", "/gradio_api/upload"])
def test_another_sites_page_cannot_ask(guard, origin, path, tmp_path):
    assert asked(guard, path, "POST", b"{}", origin=origin)[0] == 403
    assert asked(Guard(_answering, "0.0.0.0", tmp_path), path, "POST", b"{}", origin=origin)[0] == 403


@pytest.mark.parametrize(
    "path",
    ["/docs", "/openapi.json", "/monitoring", "/gradio_api/info", "/gradio_api/openapi.json", "/gradio_api/runs",
     "/gradio_api/proxy=https://example.org/x", "/gradio_api/deep_link", "/llms.txt", "/gradio_api/vibe-code"],
)  # fmt: skip
def test_what_the_page_does_not_need_is_closed(guard, path):
    assert asked(guard, path)[0] == 404
    assert asked(guard, path, "POST", b"{}")[0] == 404


def test_only_files_of_the_pages_own_folder_are_served(guard, tmp_path):
    assert asked(guard, f"/gradio_api/file={tmp_path}/a.png")[0] == 200
    for path in ("/etc/hostname", "https://example.org/a.png", f"{tmp_path}/../a.png", "a.png", f"{tmp_path}", "\0"):
        assert asked(guard, f"/gradio_api/file={path}")[0] == 403


def test_a_question_may_name_only_uploaded_files(guard, tmp_path):
    def question(path):
        return json.dumps({"data": [[{"path": path, "meta": {"_type": "gradio.FileData"}}], ["vanilla"]]}).encode()

    status, _, body = asked(guard, "/gradio_api/queue/join", "POST", question(str(tmp_path / "x" / "a.png")))
    assert (status, body) == (200, question(str(tmp_path / "x" / "a.png")))
    for path in ("/etc/hostname", "https://example.org/a.png", f"{tmp_path}/../a.png", 7):
        assert asked(guard, "/gradio_api/queue/join", "POST", question(path))[0] == 403
    assert asked(guard, "/gradio_api/queue/join", "POST", b"not json")[0] == 400
    assert asked(guard, "/gradio_api/queue/join", "POST", b'"' + b"a" * 2**21 + b'"')[0] == 413


# The command


def test_gradio_is_an_extra_that_only_the_page_imports():
    source = Path(agop.__file__).parent
    users = [path for path in source.rglob("*.py") if "import gradio" in path.read_text()]
    assert users
    assert all(path.parent == source / "app" for path in users)
    code = "import sys, agop.app.server, agop.cli.app; print('gradio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_options_without_a_model_are_a_mistake():
    with pytest.raises(InputError, match="--prior, --size, --gray without a model: name one"):
        app(prior=example.PRIOR, gray=True, size="8")


def test_without_the_extra_it_is_one_line():
    start = "from agop.cli.main import main; main()"
    code = f"import sys; sys.modules['gradio'] = None; sys.argv = ['agop', 'app']; {start}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: agop app needs gradio: pip install 'agop[app]'\n"
