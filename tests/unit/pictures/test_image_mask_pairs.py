"""Images and their masks from two folders."""

import numpy as np
import pytest
import torch
from PIL import Image

from agop.errors import AGOPWarning, FileError, InputError
from agop.pictures.image_mask_pairs import load_image_mask_pairs
from agop.pictures.preprocessing import Preprocessing
from tests.image_files import save

SMALL = Preprocessing(size=(4, 4), gray=True)


def square(rows, columns, value=255, shape=(8, 8)):
    pixels = np.zeros(shape)
    pixels[rows, columns] = value
    return pixels


@pytest.fixture
def folders(tmp_path):
    """Two classes with an image each, which is bright exactly inside its mask."""
    for name, columns in (("cats/a", slice(0, 4)), ("dogs/b", slice(4, 8))):
        save(tmp_path / f"images/{name}.png", square(slice(0, 4), columns))
        save(tmp_path / f"masks/{name}.bmp", square(slice(0, 4), columns, value=1))
    return tmp_path / "images", tmp_path / "masks"


def test_image_gets_the_mask_of_its_name_and_the_label_of_its_folder(folders):
    pairs = load_image_mask_pairs(*folders, SMALL)
    assert torch.equal(pairs.images[:, 0] > 0.5, pairs.masks)
    assert pairs.masks.sum() == 8
    assert pairs.classes == ("cats", "dogs")
    assert pairs.labels.tolist() == [0, 1]
    assert pairs.names == ("cats/a.png", "dogs/b.png")


def test_images_are_read_without_masks(folders):
    pairs, alone = load_image_mask_pairs(*folders, SMALL), load_image_mask_pairs(folders[0], None, SMALL)
    assert alone.masks is None
    assert torch.equal(alone.images, pairs.images)
    assert alone.labels.tolist() == [0, 1]


def test_linked_folders_are_read_and_broken_links_reported(folders, tmp_path):
    for folder in folders:
        (folder / "dogs").rename(tmp_path / f"{folder.name}-elsewhere")
        (folder / "dogs").symlink_to(tmp_path / f"{folder.name}-elsewhere")
    (folders[0] / "cows").symlink_to("gone")
    (folders[0] / ".hidden").mkdir()
    with pytest.warns(AGOPWarning, match="skipped: .*cows can't be read: broken link"):
        pairs = load_image_mask_pairs(*folders, SMALL)
    assert pairs.classes == ("cats", "dogs")
    assert pairs.names == ("cats/a.png", "dogs/b.png")


def test_mask_is_cropped_like_its_image(folders):
    images, masks = folders
    wide = square(slice(0, 8), slice(4, 6), shape=(8, 16))  # partly outside the crop
    save(images / "cats/a.png", wide)
    save(masks / "cats/a.bmp", wide)
    pairs = load_image_mask_pairs(images, masks, Preprocessing(size=(8, 8), gray=True))
    assert torch.equal(pairs.images[0, 0] > 0.5, pairs.masks[0])
    assert pairs.masks[0].sum() == 16


def test_there_are_no_labels_without_class_folders(folders):
    images, masks = folders
    pairs = load_image_mask_pairs(images / "cats", masks / "cats", SMALL)
    assert pairs.labels is None
    assert pairs.classes == ()


def test_unreadable_image_is_skipped_with_its_label(folders):
    images, masks = folders
    (images / "cats/a.png").write_text("text")
    with pytest.warns(AGOPWarning, match="skipped"):
        pairs = load_image_mask_pairs(images, masks, SMALL)
    assert pairs.labels.tolist() == [1]
    assert pairs.names == ("dogs/b.png",)
    assert len(pairs.images) == len(pairs.masks) == 1


def test_images_without_a_mask_are_counted_in_a_warning(folders):
    images, masks = folders
    save(images / "dogs/c.png", square(0, 0))
    with pytest.warns(AGOPWarning, match="1 of 3 images have no mask"):
        assert len(load_image_mask_pairs(images, masks, SMALL).images) == 2


def test_values_from_the_threshold_on_are_inside(folders):
    images, masks = folders
    save(masks / "cats/a.bmp", square(slice(0, 8), slice(0, 4), 100) + square(slice(0, 8), slice(4, 8), 200))
    assert load_image_mask_pairs(images, masks, SMALL, threshold=150).masks[0].sum() == 8


def test_missing_folder_or_masks_and_two_masks_of_one_image_raise(folders, tmp_path):
    images, masks = folders
    with pytest.raises(FileError, match="not a folder"):
        load_image_mask_pairs(images, tmp_path / "nowhere", SMALL)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no image in .* has a mask"):
        load_image_mask_pairs(images, tmp_path / "empty", SMALL)
    save(masks / "cats/a.png", square(0, 0))
    with pytest.raises(InputError, match="masks of the same image"):
        load_image_mask_pairs(images, masks, SMALL)


CORNER = square(slice(0, 4), slice(0, 4), 1) > 0


def read_mask(folders, mask):
    """Mask of the image cats/a, from a file with this Pillow image."""
    images, masks = folders
    (masks / "cats/a.bmp").unlink()
    mask.save(masks / "cats/a.png")
    return load_image_mask_pairs(images, masks, Preprocessing(size=(8, 8), gray=True)).masks[0]


def palette_mask():
    """Index 1 inside, which is the darker colour."""
    mask = Image.fromarray(CORNER.astype(np.uint8)).convert("P")
    mask.putdata(CORNER.astype(np.uint8).flatten().tolist())
    mask.putpalette([255, 255, 255, 0, 0, 0])
    return mask


@pytest.mark.parametrize(
    "mask", [palette_mask(), *(Image.fromarray((CORNER * high).astype(np.uint16)) for high in (300, 65535))]
)
def test_masks_with_a_palette_or_16_bits_keep_their_values(folders, mask):
    assert np.array_equal(read_mask(folders, mask), CORNER)


FOUR_VALUES = (CORNER * 1000 + square(7, 7, 300) + square(6, 6, 65535)).astype(np.uint16)
TRANSPARENT = np.dstack([np.full((8, 8, 3), 255), CORNER * 255]).astype(np.uint8)


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        ((square(0, 0) + square(1, 1, 128)).astype(np.uint8), "3 values from 0 to 255.*--threshold"),
        ((square(0, 0, 100) + 50).astype(np.uint8), "2 values from 50 to 150"),
        (square(0, 0, shape=(8, 9)).astype(np.uint8), "is 8×9, its image 8×8"),
        (FOUR_VALUES, "4 values from 0 to 65535"),
        (TRANSPARENT, "has transparency"),
    ],
)
def test_ambiguous_masks_raise(folders, pixels, message):
    with pytest.raises(InputError, match=message):
        read_mask(folders, Image.fromarray(pixels))


def test_labels_are_indices_of_the_model_s_classes(folders):
    """The images may be of some of the classes only."""
    pairs = load_image_mask_pairs(*folders, SMALL, classes=("birds", "cats", "dogs"))
    assert pairs.labels.tolist() == [1, 2]
    assert pairs.classes == ("birds", "cats", "dogs")
    with pytest.warns(AGOPWarning, match=r"dogs isn't one of the model's classes \(birds, cats\): accuracy won't be"):
        assert load_image_mask_pairs(*folders, SMALL, classes=("birds", "cats")).labels is None


def test_without_class_names_the_folders_must_be_the_model_s_classes(folders):
    with pytest.raises(InputError, match=r"the model has 3 classes, but .* for 2 \(cats, dogs\)"):
        load_image_mask_pairs(*folders, SMALL, num_classes=3)
    for folder in folders:
        save(folder / ".cache/a.png", square(slice(0, 4), slice(0, 4)))
    pairs = load_image_mask_pairs(*folders, SMALL, num_classes=2)
    assert pairs.labels.tolist() == [0, 1]
    assert pairs.names == ("cats/a.png", "dogs/b.png")
