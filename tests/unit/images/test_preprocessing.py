"""An image file becomes a model's input."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from agop import Preprocessing
from agop.errors import FileError, InputError
from tests.image_files import POSTSCRIPT, png_header

FORMATS = "BMP, GIF, JPEG, PNG, PPM, TIFF, WEBP"
GRAY = Preprocessing((4, 4), gray=True)
RAMP = np.linspace(0, 1, 16).reshape(4, 4)


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
        ((30, 45), (33, 28), 20), ((1, 40), (5, 8), 6), ((1, 400), (24, 20), 220), ((400, 1), (230, 20), 220),
    ],
)  # fmt: skip
def test_cutting_before_scaling_equals_scaling_before_cutting(interpolation, shape, size, resize):
    """The last two would have 19 million pixels if they were scaled as a whole."""
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8))
    preprocessing, how = Preprocessing(size, resize=resize), Image.Resampling[interpolation.upper()]
    ours = np.asarray(preprocessing.cut(picture, how)).astype(int)
    assert np.abs(ours - resized_then_cropped(preprocessing, picture, how)).max() <= (max(shape) == 400)


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
        ({"size": [8]}, "size has 1 values: give 2"),
        ({"size": [0, 8]}, "size is 0x8: it must be above 0"),
        ({"mean": 0.5}, "preprocessing is invalid"),
        ({"mean": [0.1, 0.2]}, "mean has 2 values: give 1 or 3"),
        ({"std": ["one"]}, "preprocessing is invalid: must be real number, not str"),
        ({"resize": "256"}, "preprocessing is invalid: '<=' not supported between instances of 'str'"),
        ({"resize": 0}, "resize is 0"),
        ({"resize": [3, 0]}, "resize is 3x0"),
        ({"interpolation": "smooth"}, "interpolation is 'smooth': give one of nearest"),
        ({"std": [float("nan")]}, "std is nan: give finite numbers"),
    ],
)
def test_invalid_recorded_values_raise_file_error(values, message):
    with pytest.raises(FileError, match=message):
        Preprocessing.from_dict(values)


@pytest.mark.parametrize(
    "pixels",
    [(RAMP * 255).astype(np.uint8), (RAMP * 65535).astype(np.uint16), RAMP.astype(np.float32)],
    ids=["8 bits", "16 bits", "float"],
)
def test_depth_does_not_change_the_values(pixels, tmp_path):
    Image.fromarray(pixels).save(tmp_path / "ramp.tiff")
    tensor = GRAY.tensor(GRAY.picture(tmp_path / "ramp.tiff"))
    assert np.abs(tensor[0].numpy() - RAMP).max() < 1 / 128


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        ((RAMP * 300).astype(np.float32), r"float values from 0 to 300.*scale them to 0\.\.1"),
        ((RAMP - 1).astype(np.float32), r"float values from -1 to 0"),
        (np.full((4, 4), np.nan, np.float32), "float values from nan to nan"),
        ((RAMP * 2**31 * 0.9).astype(np.int32), "32-bit integers.*save it with 8 or 16 bits"),
    ],
    ids=["above 1", "negative", "NaN", "32 bits"],
)
def test_depths_without_a_known_range_raise(pixels, message, tmp_path):
    Image.fromarray(pixels).save(tmp_path / "deep.tiff")
    with pytest.raises(FileError, match=message):
        GRAY.picture(tmp_path / "deep.tiff")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(POSTSCRIPT, f"unknown format, use {FORMATS}", id="postscript"),
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
    with pytest.raises(FileError, match=r"b\.png can't be read as an image: No such file"):
        Preprocessing((8, 8)).picture(tmp_path / "b.png")


def test_photos_of_two_frames_are_opened(tmp_path):
    """Phones write such a file as JPEG with the suffix .jpg; Pillow calls it MPO."""
    frames = [Image.fromarray(np.full((8, 8, 3), value, np.uint8)) for value in (50, 200)]
    frames[0].save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=frames[1:])
    assert np.abs(np.asarray(Preprocessing((8, 8)).picture(tmp_path / "a.jpg")) - 50.0).max() < 3
