"""Uploaded files: which images are read, and how others are rejected."""

import io

import numpy as np
import pytest
from PIL import Image

from agop.app.uploads import FORMATS, MOST_BYTES, read_upload
from agop.errors import FileError
from agop.pictures.preprocessing import Preprocessing
from tests.image_files import POSTSCRIPT, png_header

RGB = Preprocessing((16, 16))
GRAY = Preprocessing((16, 16), gray=True)


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
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.tif"]


def test_palette_with_transparency_is_read(tmp_path):
    image = Image.fromarray(gradient()).convert("P")
    image.save(tmp_path / "a.png", transparency=bytes(range(256)))
    assert read_upload(tmp_path / "a.png", RGB).size == (16, 16)


def test_first_frame_of_an_animation_is_read(tmp_path):
    frames = [Image.new("L", (16, 16), value) for value in (200, 10, 90)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert np.asarray(read_upload(tmp_path / "a.gif", GRAY)).mean() == 200


def file_bytes(pixels, kind):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


NOISE = file_bytes(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8), "PNG")
FLOATS = file_bytes(np.linspace(0, 1, 256).reshape(16, 16).astype(np.float32), "TIFF")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"hello, this is a note", "isn't an image", id="text"),
        pytest.param(b"", "is empty: choose another", id="empty"),
        pytest.param(POSTSCRIPT, "isn't an image", id="postscript"),
        pytest.param(NOISE[: len(NOISE) // 2], "can't be read as an image: .*truncated", id="truncated"),
        pytest.param(FLOATS, "pixels of mode F, not colours: save it", id="floats"),
        pytest.param(png_header(8000, 7000), "56 million pixels, the limit is 50 million", id="large"),
        pytest.param(png_header(10_000, 10_000), "more than 50 million pixels", id="bomb Pillow warns about"),
        pytest.param(png_header(60_000, 60_000), "more than 50 million pixels", id="bomb Pillow rejects"),
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


def test_formats_that_start_other_programs_are_rejected():
    assert not set(FORMATS) & {"EPS", "WMF", "IPTC"}
