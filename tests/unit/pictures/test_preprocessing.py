import numpy as np
import pytest
import torch
from PIL import Image

from agop.errors import FileError, InputError
from agop.pictures.folders import ClassFolders
from agop.pictures.heat import heat, overlay
from agop.pictures.preprocessing import Preprocessing
from agop.pictures.sheets import sheet


def test_a_picture_becomes_the_model_s_input(tmp_path):
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = 255, 51
    Image.fromarray(pixels).save(tmp_path / "a.png")
    how = Preprocessing((2, 3), mean=(0.5, 0.0, 0.1), std=(0.5, 0.1, 0.2))
    tensor = how.tensor(how.picture(tmp_path / "a.png"))
    assert tensor.shape == (3, 2, 3)
    torch.testing.assert_close(tensor[:, 0, 0], torch.tensor([1.0, 2.0, -0.5]))


def test_it_is_cut_around_its_centre_and_not_squeezed(tmp_path):
    pixels = np.zeros((10, 30), np.uint8)
    pixels[:, 10:20] = 255
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    assert np.asarray(Preprocessing((10, 10), gray=True).picture(tmp_path / "wide.png")).min() == 255


def test_a_rotated_photograph_stands_upright(tmp_path):
    image = Image.new("RGB", (20, 10))
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(tmp_path / "phone.jpg", exif=exif)
    with Image.open(tmp_path / "phone.jpg") as file:
        assert file.size == (20, 10)
    assert Preprocessing((20, 10)).picture(tmp_path / "phone.jpg").size == (10, 20)


def test_what_is_no_picture(tmp_path):
    (tmp_path / "a.png").write_text("text")
    Image.new("RGB", (300, 300)).save(tmp_path / "b.png")
    (tmp_path / "b.png").write_bytes((tmp_path / "b.png").read_bytes()[:60])
    for name in ("a.png", "b.png", "nothing.png"):
        with pytest.raises(FileError, match=name):
            Preprocessing().picture(tmp_path / name)


def test_a_decompression_bomb_is_no_picture(tmp_path, monkeypatch):
    Image.new("1", (300, 300)).save(tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(FileError, match=r"bomb\.png"):
        Preprocessing().picture(tmp_path / "bomb.png")


def test_class_folders(tmp_path):
    for name in ("b/1.png", "a/2.jpg", "a/deep/3.PNG"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (5, 5)).save(tmp_path / name)
    (tmp_path / "a" / "notes.txt").write_text("")
    found = ClassFolders(tmp_path, Preprocessing((4, 4)))
    assert found.classes == ["a", "b"]
    assert [(path.name, label) for path, label in found.files] == [("2.jpg", 0), ("3.PNG", 0), ("1.png", 1)]
    batches = found.batches(2)
    assert [labels.tolist() for _, labels in batches] == [[0, 0], [1]]
    assert len(batches) == 2
    with pytest.raises(InputError, match="no pictures in class folders"):
        ClassFolders(tmp_path / "b", Preprocessing())


def test_heat_is_monotone_in_lightness_and_zero_maps_are_dark():
    colours = heat(np.linspace(0, 1, 50)[None])[0].astype(float)
    lightness = colours @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness) > 0).all()
    assert heat(np.zeros((3, 3))).max() <= 4
    assert heat(np.full((1, 1), 1.0), scale=2.0).tolist() == heat(np.array([[1.0, 2.0]]))[:, :1].tolist()


def test_an_overlay_shows_the_map_where_it_is_strong_and_the_picture_elsewhere():
    picture = np.full((4, 4, 3), 200, np.uint8)
    saliency = np.zeros((4, 4))
    saliency[1, 2] = 3
    drawn = overlay(picture, saliency).astype(int)
    assert drawn[1, 2].tolist() == heat(saliency)[1, 2].tolist()
    assert np.ptp(drawn[3, 3]) < 12
    assert drawn[3, 3].mean() > 80


def test_a_sheet_says_so_when_a_map_is_zero():
    picture, zero = np.zeros((40, 40, 3), np.uint8), np.zeros((40, 40))
    plain, marked = sheet(picture, {"vanilla": zero + 1}), sheet(picture, {"vanilla": zero})
    assert plain.size == marked.size
    assert np.asarray(plain)[:20].tolist() != np.asarray(marked)[:20].tolist()


def test_a_picture_of_16_bits_is_as_bright_as_one_of_8(tmp_path):
    shallow = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    Image.fromarray(shallow).save(tmp_path / "8.png")
    Image.fromarray(shallow.astype(np.uint16) * 257).save(tmp_path / "16.png")
    how = Preprocessing(size=(8, 8), gray=True)
    assert torch.equal(how.tensor(how.picture(tmp_path / "16.png")), how.tensor(how.picture(tmp_path / "8.png")))
