"""An image file becomes a model's input."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from agop.errors import FileError, InputError
from agop.pictures import preprocessing as preprocessing_module
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


def resized_then_cropped(preprocessing, picture, how):
    """The slow, obvious way, as torchvision does it: scale the whole image, then cut out its centre."""
    height, width = preprocessing.size
    rows, columns = preprocessing.resize if isinstance(preprocessing.resize, tuple) else (None, None)
    if rows is None:
        shorter = min(picture.size)
        columns, rows = (int(preprocessing.resize * side / shorter) for side in picture.size)
    scaled = np.asarray(picture.resize((columns, rows), how))
    missing = [max(wanted - side, 0) for wanted, side in ((height, rows), (width, columns))]
    padded = np.pad(scaled, [*((count // 2, (count + 1) // 2) for count in missing), (0, 0)])
    top, left = round((padded.shape[0] - height) / 2), round((padded.shape[1] - width) / 2)
    return padded[top : top + height, left : left + width]


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize(
    ("shape", "size", "resize"),
    [
        ((90, 60), (24, 24), 32), ((60, 91), (24, 20), 25), ((7, 11), (20, 20), 31), ((50, 40), (16, 16), (40, 18)),
        ((30, 45), (33, 28), 20), ((1, 40), (5, 8), 6),
    ],
)  # fmt: skip
@pytest.mark.parametrize("most", [0, 2**24])
def test_cutting_before_scaling_equals_scaling_before_cutting(interpolation, shape, size, resize, most, monkeypatch):
    monkeypatch.setattr(preprocessing_module, "_MOST_SCALED", most)
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8))
    preprocessing, how = Preprocessing(size, resize=resize), Image.Resampling[interpolation.upper()]
    ours = np.asarray(preprocessing.cut(picture, how)).astype(int)
    assert np.abs(ours - resized_then_cropped(preprocessing, picture, how)).max() <= (most == 0)


@pytest.mark.parametrize("resize", [None, 256, (256, 256), (9_000, 9_000)])
@pytest.mark.parametrize("shape", [(1, 3_000), (3_000, 1)])
def test_no_scaled_image_is_much_larger_than_the_input(tmp_path, shape, resize, monkeypatch):
    """Scaled as a whole, a narrow image would have hundreds of times as many pixels."""
    Image.new("L", shape, 77).save(tmp_path / "narrow.png")
    scaled, scale = [], Image.Image.resize

    def recorded(*arguments, **options):
        scaled.append(scale(*arguments, **options))
        return scaled[-1]

    monkeypatch.setattr(Image.Image, "resize", recorded)
    picture = Preprocessing((224, 224), resize=resize).picture(tmp_path / "narrow.png")
    assert np.array_equal(picture, np.full((224, 224, 3), 77))
    assert max(image.width * image.height for image in scaled) <= 256 * 256


def test_input_size_is_bounded():
    assert Preprocessing((4096, 4096)).size == (4096, 4096)
    with pytest.raises(InputError, match=r"size is 16000x16000: .* 4096x4096"):
        Preprocessing((16_000, 16_000))


def test_16_bit_image_is_as_bright_as_its_8_bit_version(tmp_path):
    shallow = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    Image.fromarray(shallow).save(tmp_path / "8.png")
    Image.fromarray(shallow.astype(np.uint16) * 257).save(tmp_path / "16.png")
    preprocessing = Preprocessing(size=(8, 8), gray=True)
    eight, sixteen = (preprocessing.tensor(preprocessing.picture(tmp_path / f"{bits}.png")) for bits in (8, 16))
    assert torch.equal(sixteen, eight)


@pytest.mark.parametrize(
    "preprocessing",
    [
        Preprocessing(),
        Preprocessing((24, 40), (0.4,), (0.2,), gray=True, resize=48),
        Preprocessing((8, 8), (0, 1, 0), (1, 2, 3), resize=(9, 10), interpolation="bicubic"),
    ],
)
def test_from_dict_inverts_to_dict_also_after_json(preprocessing):
    values = preprocessing.to_dict()
    assert Preprocessing.from_dict(values) == preprocessing
    assert Preprocessing.from_dict(json.loads(json.dumps(values))) == preprocessing


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"colour": "red"}, r"unknown fields \(colour\): upgrade agop"),
        ({"size": [8]}, "size has 1 values: expected 2"),
        ({"size": [8.0, 8.0]}, "size is 8.0: expected int"),
        ({"size": [0, 8]}, "size is 0x8: it must be above 0"),
        ({"mean": 0.5}, "mean is 0.5: expected list"),
        ({"mean": [0.1, 0.2]}, "mean has 2 values: give 1 or 3"),
        ({"std": ["1"]}, "std is '1': expected float"),
        ({"gray": 1}, "gray is 1: expected bool"),
        ({"resize": "256"}, "resize is '256': expected int or list"),
        ({"interpolation": "smooth"}, "interpolation is 'smooth': give one of"),
        ({"interpolation": None, "std": [float("nan")]}, "std is nan: expected a finite number"),
    ],
)
def test_invalid_recorded_values_raise_file_error(values, message):
    with pytest.raises(FileError, match=message):
        Preprocessing.from_dict(values)


@pytest.mark.parametrize("name", ["mean", "std"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_mean_and_std_must_be_finite(name, value):
    with pytest.raises(InputError, match=f"{name} is {value}: give finite numbers"):
        Preprocessing(**{name: (value,)})
