"""Photographs from files of several formats."""

import pickle
import struct

import numpy as np
import pytest
from PIL import Image

from agop.errors import AGOPError, AGOPWarning
from agop.pictures import cifar10
from agop.pictures.photos import read_photos


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
    path.write_bytes(np.concatenate([np.zeros((len(images), 1), np.uint8), planes(images)], axis=1).tobytes())


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
            write_python(path / name, {b"data": planes(part), b"labels": [0] * len(part)})
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
        "data_batch_2": r"6 images and labels of shape \(2,\): download it again",
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


@pytest.mark.parametrize("form", ["python", "binary", "python 2"])
def test_labels_of_every_format_are_equal(tmp_path, images, form):
    labels = np.arange(6, dtype=np.uint8)
    for name, part in (("data_batch_1", slice(0, 4)), ("test_batch", slice(4, 6))):
        rows = planes(images[part])
        if form == "python":
            write_python(tmp_path / name, {b"data": rows, b"labels": labels[part].tolist()})
        elif form == "binary":
            (tmp_path / f"{name}.bin").write_bytes(np.concatenate([labels[part, None], rows], axis=1).tobytes())
        else:
            (tmp_path / name).write_bytes(python_2_pickle(rows))  # numbers its rows
    pixels, classes = cifar10.read_folder(tmp_path)
    assert np.array_equal(pixels, images)
    assert classes.tolist() == ([0, 1, 2, 3, 0, 1] if form == "python 2" else labels.tolist())
