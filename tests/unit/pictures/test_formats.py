"""Which image files are opened."""

import numpy as np
import pytest
from PIL import Image

from agop.errors import FileError
from agop.pictures.formats import FORMATS, open_image
from agop.pictures.preprocessing import Preprocessing
from tests.image_files import POSTSCRIPT, png_header, save


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(POSTSCRIPT, f"unknown format, use {', '.join(FORMATS)}", id="postscript"),
        pytest.param(b"text", "unknown format", id="text"),
        pytest.param(b"", "unknown format", id="empty"),
        pytest.param(png_header(60_000, 60_000), "too many pixels, make it smaller", id="bomb"),
        pytest.param(png_header(2_000_000, 1), "it is 2000000×1, a side has at most 1,000,000 pixels", id="long"),
        pytest.param(png_header(9, 9), "truncated", id="truncated"),
    ],
)
def test_other_content_named_png_is_not_opened(tmp_path, content, message):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(FileError, match=message) as raised:
        Preprocessing((8, 8)).picture(tmp_path / "a.png")
    assert str(raised.value).startswith(f"{tmp_path / 'a.png'} can't be read as an image: ")


def test_photos_of_two_frames_are_opened(tmp_path):
    """Phones write such a file as JPEG with the suffix .jpg; Pillow calls it MPO."""
    frames = [Image.fromarray(np.full((8, 8, 3), value, np.uint8)) for value in (50, 200)]
    frames[0].save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=frames[1:])
    assert np.abs(np.asarray(Preprocessing((8, 8)).picture(tmp_path / "a.jpg")) - 50.0).max() < 3


def test_the_kind_of_file_is_named(tmp_path):
    save(tmp_path / "a.png", np.zeros((4, 4)))
    with open_image(tmp_path / "a.png") as file:
        assert file.size == (4, 4)
    with pytest.raises(FileError, match="can't be read as a mask: No such file"), open_image(tmp_path / "b", "a mask"):
        pass
