"""An image file becomes a model's input."""

import numpy as np
import pytest
import torch
from PIL import Image

from agop.errors import FileError
from agop.pictures.preprocessing import Preprocessing


def test_pixels_are_scaled_and_normalized_per_channel(tmp_path):
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = 255, 51
    Image.fromarray(pixels).save(tmp_path / "a.png")
    preprocessing = Preprocessing((2, 3), mean=(0.5, 0.0, 0.1), std=(0.5, 0.1, 0.2))
    tensor = preprocessing.tensor(preprocessing.picture(tmp_path / "a.png"))
    assert tensor.shape == (3, 2, 3)
    torch.testing.assert_close(tensor[:, 0, 0], torch.tensor([1.0, 2.0, -0.5]))


def test_image_is_cropped_at_its_centre_and_keeps_its_aspect_ratio(tmp_path):
    pixels = np.zeros((10, 30), np.uint8)
    pixels[:, 10:20] = 255
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    assert np.asarray(Preprocessing((10, 10), gray=True).picture(tmp_path / "wide.png")).min() == 255


def test_exif_orientation_is_applied(tmp_path):
    left = np.zeros((10, 20), np.uint8)
    left[:, :10] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90° clockwise
    Image.fromarray(left).save(tmp_path / "phone.png", exif=exif)
    upright = np.repeat([[255], [0]], [10, 10], axis=0).repeat(10, axis=1)
    assert np.array_equal(Preprocessing((20, 10), gray=True).picture(tmp_path / "phone.png"), upright)


def test_text_truncated_missing_and_huge_files_raise_with_their_name(tmp_path, monkeypatch):
    Image.new("1", (300, 300)).save(tmp_path / "bomb.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "bomb.png").read_bytes()[:60])
    (tmp_path / "text.png").write_text("text")
    for name in ("text.png", "cut.png", "nothing.png"):
        with pytest.raises(FileError, match=name):
            Preprocessing().picture(tmp_path / name)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(FileError, match=r"bomb\.png"):
        Preprocessing().picture(tmp_path / "bomb.png")


def test_16_bit_image_is_as_bright_as_its_8_bit_version(tmp_path):
    shallow = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    Image.fromarray(shallow).save(tmp_path / "8.png")
    Image.fromarray(shallow.astype(np.uint16) * 257).save(tmp_path / "16.png")
    preprocessing = Preprocessing(size=(8, 8), gray=True)
    eight, sixteen = (preprocessing.tensor(preprocessing.picture(tmp_path / f"{bits}.png")) for bits in (8, 16))
    assert torch.equal(sixteen, eight)
