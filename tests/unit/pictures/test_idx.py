"""MNIST's idx files."""

import gzip
import struct

import numpy as np
import pytest

from agop.errors import AGOPError, FileError, InputError
from agop.pictures.idx import read_digits

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def idx(array):
    """Content of an idx file of unsigned bytes."""
    return struct.pack(f">I{array.ndim}I", 0x800 | array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write(folder, count=4, prefix="train", pack=False):
    random = np.random.default_rng(count)
    images, labels = random.integers(0, 256, (count, 6, 5)), random.integers(0, 10, count)
    for name, array in ((f"{prefix}-images-idx3-ubyte", images), (f"{prefix}-labels-idx1-ubyte", labels)):
        content = idx(array)
        (folder / (name + ".gz" * pack)).write_bytes(gzip.compress(content) if pack else content)
    return images, labels


@pytest.mark.parametrize("pack", [False, True])
def test_digits_of_a_file_and_of_a_folder(tmp_path, pack):
    images, labels = write(tmp_path, pack=pack)
    for path in (tmp_path, tmp_path / (IMAGES + ".gz" * pack)):
        read_images, read_labels = read_digits(path)
        assert np.array_equal(read_images, images)
        assert np.array_equal(read_labels, labels)


def test_all_files_of_a_folder_are_read_once(tmp_path):
    """Packed files beside unpacked ones are the same digits: twice, they could be in two splits."""
    write(tmp_path, pack=True)
    train, test = write(tmp_path), write(tmp_path, 3, "t10k")
    images, labels = read_digits(tmp_path)
    assert len(images) == 7
    assert sorted(labels) == sorted([*train[1], *test[1]])


def test_folder_or_file_without_idx_files_raises(tmp_path):
    with pytest.raises(InputError, match="has no idx files: it needs train-images-idx3-ubyte"):
        read_digits(tmp_path)
    with pytest.raises(FileError, match="doesn't exist: pass a folder with train-images-idx3-ubyte"):
        read_digits(tmp_path / IMAGES)
    write(tmp_path)
    (tmp_path / LABELS).unlink()
    with pytest.raises(FileError, match="has no labels beside it"):
        read_digits(tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (IMAGES, lambda content: content[:-1], r"truncated or damaged, 119 values instead of 120"),
        (IMAGES, lambda content: content[:9], r"is truncated, 9 bytes"),
        (IMAGES, lambda content: b"", r"magic number 0x00000000 instead of 0x00000803"),
        (IMAGES, lambda content: b"<!DOCTYPE html>" + content, "magic number 0x3c21444f"),
        (LABELS, lambda content: b"\0\0\x08\x03" + content[4:], "magic number .* pass an idx file of labels"),
        (LABELS, lambda content: content + b"\1", "5 values instead of 4"),
        (LABELS, lambda content: idx(np.zeros(5)), "has 4 images, train-labels-idx1-ubyte 5 labels"),
        (LABELS, lambda content: idx(np.array([0, 1, 2, 10])), "4 labels, not all of them digits"),
    ],
)
def test_damaged_files_raise(tmp_path, name, change, message):
    write(tmp_path)
    (tmp_path / name).write_bytes(change((tmp_path / name).read_bytes()))
    with pytest.raises(AGOPError, match=message):
        read_digits(tmp_path)


def test_damaged_gz_raises(tmp_path):
    write(tmp_path, pack=True)
    path = tmp_path / f"{IMAGES}.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FileError, match="can't be unpacked"):
        read_digits(tmp_path)
