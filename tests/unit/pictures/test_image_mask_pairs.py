"""Pictures and their masks from two folders."""

import numpy as np
import pytest
import torch
from PIL import Image

from agop.errors import AGOPWarning, FileError, InputError
from agop.pictures.image_mask_pairs import load_image_mask_pairs
from agop.pictures.preprocessing import Preprocessing

SMALL = Preprocessing(size=(4, 4), gray=True)


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(path, **options)
    return path


def square(rows, columns, value=255, shape=(8, 8)):
    pixels = np.zeros(shape)
    pixels[rows, columns] = value
    return pixels


@pytest.fixture
def folders(tmp_path):
    """A picture that is bright just where its mask is, in each of two classes."""
    for name, columns in (("cats/a", slice(0, 4)), ("dogs/b", slice(4, 8))):
        save(tmp_path / f"pictures/{name}.png", square(slice(0, 4), columns))
        save(tmp_path / f"masks/{name}.bmp", square(slice(0, 4), columns, value=1))
    return tmp_path / "pictures", tmp_path / "masks"


def test_each_picture_meets_the_mask_of_its_name_and_the_label_of_its_folder(folders):
    found = load_image_mask_pairs(*folders, SMALL)
    assert torch.equal(found.images[:, 0] > 0.5, found.masks)
    assert found.masks.sum() == 8
    assert found.classes == ("cats", "dogs")
    assert found.labels.tolist() == [0, 1]
    assert found.names == ("cats/a.png", "dogs/b.png")


def test_a_mask_is_cut_as_its_picture_is(folders):
    pictures, masks = folders
    wide = square(slice(0, 8), slice(4, 6), shape=(8, 16))  # partly outside the square that is cut out
    save(pictures / "cats/a.png", wide)
    save(masks / "cats/a.bmp", wide)
    found = load_image_mask_pairs(pictures, masks, Preprocessing(size=(8, 8), gray=True))
    assert torch.equal(found.images[0, 0] > 0.5, found.masks[0])
    assert found.masks[0].sum() == 16


def test_without_class_folders_there_are_no_labels(folders):
    pictures, masks = folders
    found = load_image_mask_pairs(pictures / "cats", masks / "cats", SMALL)
    assert found.labels is None
    assert found.classes == ()


def test_a_picture_that_cannot_be_read_takes_its_label_with_it(folders):
    pictures, masks = folders
    (pictures / "cats/a.png").write_text("no picture")
    with pytest.warns(AGOPWarning, match="left out"):
        found = load_image_mask_pairs(pictures, masks, SMALL)
    assert found.labels.tolist() == [1]
    assert found.names == ("dogs/b.png",)
    assert len(found.images) == len(found.masks) == 1


def test_pictures_without_a_mask_are_told(folders):
    pictures, masks = folders
    save(pictures / "dogs/c.png", square(0, 0))
    with pytest.warns(AGOPWarning, match="1 of 3 pictures have no mask"):
        assert len(load_image_mask_pairs(pictures, masks, SMALL).images) == 2


@pytest.mark.parametrize(
    ("pixels", "told"),
    [
        (square(0, 0) + square(1, 1, 128), "3 values from 0 to 255.*--threshold"),
        (square(0, 0, 100) + 50, "2 values from 50 to 150"),
        (square(0, 0, shape=(8, 9)), "9×8, its picture 8×8"),
    ],
)
def test_masks_that_could_mean_two_things_are_refused(folders, pixels, told):
    pictures, masks = folders
    save(masks / "cats/a.bmp", pixels)
    with pytest.raises(InputError, match=told):
        load_image_mask_pairs(pictures, masks, SMALL)


def test_a_threshold_says_what_is_inside(folders):
    pictures, masks = folders
    save(masks / "cats/a.bmp", square(slice(0, 8), slice(0, 4), 100) + square(slice(0, 8), slice(4, 8), 200))
    assert load_image_mask_pairs(pictures, masks, SMALL, threshold=150).masks[0].sum() == 8


def test_what_is_missing_is_named(folders, tmp_path):
    pictures, _ = folders
    with pytest.raises(FileError, match="not a folder"):
        load_image_mask_pairs(pictures, tmp_path / "nowhere", SMALL)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no picture in .* has a mask"):
        load_image_mask_pairs(pictures, tmp_path / "empty", SMALL)


def masks_of(folders, write):
    """The mask that is read from a file that `write` makes in the place of cats/a's."""
    pictures, masks = folders
    (masks / "cats/a.bmp").unlink()
    write(masks / "cats")
    return load_image_mask_pairs(pictures, masks, Preprocessing(size=(8, 8), gray=True)).masks[0]


CORNER = square(slice(0, 4), slice(0, 4), 1) > 0


@pytest.mark.parametrize("high", [300, 65535])
def test_a_mask_of_16_bits_is_read_as_it_stands(folders, high):
    def write(folder):
        Image.fromarray((CORNER * high).astype(np.uint16)).save(folder / "a.png")

    assert np.array_equal(masks_of(folders, write), CORNER)


def test_a_mask_of_16_bits_and_four_values_is_refused(folders):
    values = (CORNER * 1000 + square(7, 7, 300) + square(6, 6, 65535)).astype(np.uint16)
    with pytest.raises(InputError, match="4 values from 0 to 65535"):
        masks_of(folders, lambda folder: Image.fromarray(values).save(folder / "a.png"))


def test_a_palette_s_colours_do_not_matter(folders):
    def write(folder):
        indexed = Image.fromarray(CORNER.astype(np.uint8), mode=None).convert("P")
        indexed.putdata(CORNER.astype(np.uint8).flatten().tolist())
        indexed.putpalette([255, 255, 255, 0, 0, 0])
        indexed.save(folder / "a.png")

    assert np.array_equal(masks_of(folders, write), CORNER)


def test_a_mask_in_the_transparency_is_refused(folders):
    pixels = np.full((8, 8, 4), 255, dtype=np.uint8)
    pixels[..., 3] = CORNER * 255
    with pytest.raises(InputError, match="transparent parts"):
        masks_of(folders, lambda folder: Image.fromarray(pixels).save(folder / "a.png"))


def test_two_masks_of_one_picture_are_refused(folders):
    pictures, masks = folders
    save(masks / "cats/a.png", square(0, 0))
    with pytest.raises(InputError, match="masks of one picture"):
        load_image_mask_pairs(pictures, masks, SMALL)


def test_labels_are_those_of_the_model_s_classes(folders):
    """Where the pictures are of some of the classes only."""
    found = load_image_mask_pairs(*folders, SMALL, classes=("birds", "cats", "dogs"))
    assert found.labels.tolist() == [1, 2]
    assert found.classes == ("birds", "cats", "dogs")
    with pytest.warns(AGOPWarning, match="dogs is no class of the prior"):
        assert load_image_mask_pairs(*folders, SMALL, classes=("birds", "cats")).labels is None
