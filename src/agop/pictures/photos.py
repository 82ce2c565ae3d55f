"""Photographs as one array: from a folder of image files, an .npz file, or CIFAR-10's own files."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from agop.errors import FileError, InputError, warn
from agop.pictures import cifar10
from agop.pictures.image_files import image_files
from agop.pictures.preprocessing import Preprocessing

Bytes = NDArray[np.uint8]
_FORMS = "a folder of images, an .npz with images (N,H,W,3), or CIFAR-10's folder cifar-10-batches-py or -bin"


def read_photos(path: Path, size: int, most: int) -> Bytes:
    """Photographs (N,size,size,3), scaled to their shorter side and cropped. Of more than `most`, evenly spaced ones.

    The path is a folder of images (class folders are read as well), an .npz, or CIFAR-10's folder or one of its files.
    """
    if path.is_dir():
        return (
            _resized(cifar10.read_folder(path)[0], size, most)
            if cifar10.batches(path)
            else _from_files(path, size, most)
        )
    if not path.exists():
        raise FileError(f"{path} doesn't exist: pass {_FORMS}")
    return _resized(_from_npz(path) if path.suffix == ".npz" else cifar10.read_batch(path)[0], size, most)


def _from_files(folder: Path, size: int, most: int) -> Bytes:
    """Photographs of image files. Unreadable ones are skipped with a warning."""
    files = image_files(folder)
    if not files:
        raise InputError(f"{folder} has no pictures: pass {_FORMS}")
    preprocessing, photos = Preprocessing((size, size)), []
    for place in _spaced(len(files), most):
        try:
            photos.append(np.asarray(preprocessing.picture(files[place])))
        except FileError as error:
            warn(f"skipped: {error}")
    if not photos:
        raise InputError(f"none of the {len(files)} files in {folder} could be read as a picture")
    return np.stack(photos)


def _from_npz(path: Path) -> Bytes:
    """All arrays of images (N,H,W,3) in the file, one after the other."""
    try:
        with np.load(path) as file:
            arrays: list[NDArray[Any]] = [file[name] for name in file.files]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise FileError(f"{path} can't be read: {error}") from error
    images = [array for array in arrays if array.ndim == 4 and array.shape[-1] == 3 and array.dtype == np.uint8]
    if not images:
        shapes = ", ".join(f"{array.shape} {array.dtype}" for array in arrays) or "nothing"
        raise InputError(f"{path} has {shapes}: save images (N,H,W,3) of 8 bits, numpy.savez(path, images=images)")
    if len({array.shape[1:] for array in images}) > 1:
        raise InputError(f"{path} has images of several sizes: save images of one size")
    return np.concatenate(images)


def _resized(images: Bytes, size: int, most: int) -> Bytes:
    """Some of the images (N,H,W,3), scaled and cropped to (size,size)."""
    some = images[_spaced(len(images), most)]
    if not len(some):
        raise InputError(f"no pictures to read: pass {_FORMS}")
    if some.shape[1:3] == (size, size):
        return some
    how = Image.Resampling.BILINEAR
    return np.stack([np.asarray(ImageOps.fit(Image.fromarray(image), (size, size), how)) for image in some])


def _spaced(count: int, most: int) -> NDArray[np.int64]:
    """At most `most` indices below count, evenly spaced."""
    return np.linspace(0, count - 1, min(count, most)).astype(np.int64)
