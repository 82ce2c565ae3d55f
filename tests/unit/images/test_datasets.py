"""Data sets on disk: photographs, MNIST's idx files, and images with their masks."""

import pickle
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from agop import Preprocessing
from agop.errors import AGOPError, AGOPWarning, FileError, InputError
from agop.images.datasets import load_image_mask_pairs, read_digits, read_folder, read_photos
from tests.image_files import idx, save, write_digits


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)


def planes(images):
    """Rows (N,3072) as CIFAR-10 stores them: red, green, then blue."""
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


def write_python(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))


def python_2_pickle(rows):
    """A dict with the rows and labels 0, 1 …, as in CIFAR-10's official files of Python 2: byte strings, old names."""
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    state = b"(K\x01" + struct.pack("<BH", ord("M"), len(rows)) + b"M\x00\x0c\x86" + dtype + b"\x89"
    data = b"U\x04data" + empty + state + b"T" + struct.pack("<I", rows.size) + rows.tobytes() + b"tb"
    labels = b"U\x06labels](" + b"".join(b"K" + bytes([label]) for label in range(len(rows))) + b"e"
    return b"\x80\x02}(" + data + labels + b"u."


def write_binary(path, images):
    path.parent.mkdir(exist_ok=True)
    labels = np.arange(len(images), dtype=np.uint8)
    path.write_bytes(np.concatenate([labels[:, None], planes(images)], axis=1).tobytes())


def test_folder_of_images_with_class_folders(tmp_path, images):
    for place, image in enumerate(images):
        path = tmp_path / f"class{place // 3}" / f"{place}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(image).save(path)
    assert np.array_equal(read_photos(tmp_path, 32, 100), images)
    (tmp_path / "class1" / "9.png").write_bytes(b"not an image")
    with pytest.warns(AGOPWarning, match=r"9\.png can't be read"):
        assert len(read_photos(tmp_path, 32, 100)) == 6


def test_shorter_side_is_scaled_and_the_centre_kept(tmp_path):
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40] = 255
    Image.fromarray(wide).save(tmp_path / "wide.png")
    np.savez(tmp_path / "wide.npz", wide[None])
    for path in (tmp_path, tmp_path / "wide.npz"):
        assert (read_photos(path, 10, 1)[:, :, 1:-1] == 255).all()  # interpolation blurs the edge


@pytest.mark.parametrize("form", ["npz", "python", "binary", "one batch", "python 2"])
def test_arrays_of_every_format_are_equal(tmp_path, images, form):
    path = tmp_path / "cifar"
    if form == "npz":
        path = tmp_path / "photos.npz"
        np.savez(path, x_train=images[:4], y_train=np.arange(4), x_test=images[4:], y_test=np.arange(2))
    elif form == "python":
        for name, part in (("data_batch_1", images[:4]), ("test_batch", images[4:])):
            write_python(path / name, {b"data": planes(part), b"labels": list(range(len(part)))})
        write_python(path / "batches.meta", {b"label_names": []})
    elif form == "binary":
        write_binary(path / "data_batch_1.bin", images[:4])
        write_binary(path / "test_batch.bin", images[4:])
    elif form == "python 2":
        path.mkdir()
        (path / "data_batch_1").write_bytes(python_2_pickle(planes(images)))
    else:
        path = tmp_path / "data_batch_3"
        write_python(path, {b"data": planes(images), b"labels": [0] * len(images)})
    assert np.array_equal(read_photos(path, 32, 100), images)
    assert np.array_equal(read_photos(path, 32, 3), images[[0, 2, 5]])
    assert read_photos(path, 16, 2).shape == (2, 16, 16, 3)
    if path.is_dir():
        pixels, labels = read_folder(path)
        assert np.array_equal(pixels, images)
        assert labels.tolist() == ([0, 1, 2, 3, 4, 5] if form == "python 2" else [0, 1, 2, 3, 0, 1])


def test_empty_folders_and_damaged_files_raise(tmp_path, images):
    write_binary(tmp_path / "cut.bin", images)
    (tmp_path / "cut.bin").write_bytes((tmp_path / "cut.bin").read_bytes()[:-5])
    (tmp_path / "cut.npz").write_bytes(b"PK")
    np.savez(tmp_path / "labels.npz", labels=np.arange(3))
    np.savez(tmp_path / "mixed.npz", images, images[:, :16])
    write_python(tmp_path / "data_batch_1", {b"data": np.zeros((2, 5), np.uint8), b"labels": [0, 0]})
    write_python(tmp_path / "data_batch_2", {b"data": planes(images), b"labels": [0, 1]})
    (tmp_path / "letter.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.png").write_bytes(b"")
    expected = {
        "missing": "doesn't exist: pass a folder of images, an .npz",
        "empty": "has no pictures: pass a folder of images",
        "cut.bin": "not a multiple of 3073",
        "cut.npz": "can't be read",
        "labels.npz": r"has \(3,\) int64: save images \(N,H,W,3\) of 8 bits",
        "mixed.npz": "several sizes",
        "data_batch_1": "has no images of CIFAR-10",
        "data_batch_2": r"bytes \(N,3072\) with a label each: download it again",
        "letter.txt": "neither an .npz file nor a batch of CIFAR-10",
    }
    for name, message in expected.items():
        with pytest.raises(AGOPError, match=message):
            read_photos(tmp_path / name, 32, 10)
    with pytest.warns(AGOPWarning), pytest.raises(AGOPError, match="none of the 1 files"):
        read_photos(tmp_path / "broken", 32, 10)


class Harmful:
    def __reduce__(self):
        return (print, ("this code ran",))


def test_pickle_that_could_run_code_is_rejected(tmp_path, capsys):
    write_python(tmp_path / "data_batch_1", {b"data": Harmful()})
    with pytest.raises(AGOPError, match="could run code"):
        read_photos(tmp_path, 32, 10)
    assert not capsys.readouterr().out


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize("pack", [False, True])
def test_digits_of_a_file_and_of_a_folder(tmp_path, pack):
    images, labels = write_digits(tmp_path, pack=pack)
    for path in (tmp_path, tmp_path / (IMAGES + ".gz" * pack)):
        read_images, read_labels = read_digits(path)
        assert np.array_equal(read_images, images)
        assert np.array_equal(read_labels, labels)


def test_all_files_of_a_folder_are_read_once(tmp_path):
    """Packed files beside unpacked ones are the same digits: twice, they could be in two splits."""
    write_digits(tmp_path, pack=True)
    train, test = write_digits(tmp_path), write_digits(tmp_path, 3, "t10k")
    images, labels = read_digits(tmp_path)
    assert len(images) == 7
    assert sorted(labels) == sorted([*train[1], *test[1]])


def test_folder_or_file_without_idx_files_raises(tmp_path):
    with pytest.raises(InputError, match="has no idx files: it needs train-images-idx3-ubyte"):
        read_digits(tmp_path)
    with pytest.raises(FileError, match="doesn't exist: pass a folder with train-images-idx3-ubyte"):
        read_digits(tmp_path / IMAGES)
    write_digits(tmp_path)
    (tmp_path / LABELS).unlink()
    with pytest.raises(FileError, match="has no labels beside it"):
        read_digits(tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (IMAGES, lambda content: content[:-1], "truncated or damaged, 119 values instead of 120"),
        (IMAGES, lambda content: content[:9], "truncated or damaged, 0 values"),
        (IMAGES, lambda content: b"", r"magic number 0x00000000 instead of 0x00000803"),
        (IMAGES, lambda content: b"<!DOCTYPE html>" + content, "magic number 0x3c21444f"),
        (LABELS, lambda content: b"\0\0\x08\x03" + content[4:], "magic number .* pass an idx file of labels"),
        (LABELS, lambda content: content + b"\1", "truncated or damaged, 5 values instead of 4"),
        (LABELS, lambda content: idx(np.zeros(5)), "has 4 images, train-labels-idx1-ubyte 5 labels"),
        (LABELS, lambda content: idx(np.array([0, 1, 2, 10])), "4 labels, not all of them digits"),
        (f"{IMAGES}.gz", lambda content: content[:-9], "can't be unpacked"),
    ],
)
def test_damaged_files_raise(tmp_path, name, change, message):
    write_digits(tmp_path, pack=name.endswith(".gz"))
    (tmp_path / name).write_bytes(change((tmp_path / name).read_bytes()))
    with pytest.raises(AGOPError, match=message):
        read_digits(tmp_path)


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
    loose = load_image_mask_pairs(*(folder / "cats" for folder in folders), SMALL)
    assert (loose.labels, loose.classes) == (None, ())


@pytest.mark.parametrize("resize", [None, 40, 24, (32, 36), (50, 20)])
def test_mask_is_scaled_and_cropped_like_its_image(folders, resize):
    images, masks = folders
    wide = square(slice(18, 42), slice(33, 57), shape=(60, 90))
    save(images / "cats/a.png", wide)
    save(masks / "cats/a.bmp", wide)
    nearest = Preprocessing((32, 32), gray=True, resize=resize, interpolation="nearest")
    pairs = load_image_mask_pairs(images, masks, nearest)
    assert torch.equal(pairs.images[:, 0] > 0.5, pairs.masks)
    assert 0 < pairs.masks[0].sum() < 32 * 32


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
    with pytest.raises(InputError, match="2 classes are named cats: use a name for one class only"):
        load_image_mask_pairs(*folders, SMALL, classes=("cats", "cats", "dogs"))
    for folder in folders:
        save(folder / ".cache/a.png", square(slice(0, 4), slice(0, 4)))
    pairs = load_image_mask_pairs(*folders, SMALL, num_classes=2)
    assert pairs.labels.tolist() == [0, 1]
    assert pairs.names == ("cats/a.png", "dogs/b.png")
