"""MNIST's idx files: images and their labels."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agop.errors import FileError, InputError
from agop.system.files import read_bytes

Bytes = NDArray[np.uint8]
# Magic numbers of files of bytes with three dimensions and with one.
_IMAGES, _LABELS = 0x803, 0x801
_NAMES = "train-images-idx3-ubyte and train-labels-idx1-ubyte, also with .gz"


def read_digits(path: Path) -> tuple[Bytes, Bytes]:
    """Images (N,H,W) and labels (N,) of a file of images, whose labels are beside it, or of all files in a folder."""
    if not path.exists():
        raise FileError(f"{path} doesn't exist: pass a folder with {_NAMES}")
    files = _image_files(path) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} has no idx files: it needs {_NAMES}")
    pairs = [_pair(file) for file in files]
    images, labels = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    if not len(labels) or labels.max() > 9:
        raise InputError(f"{path} has {len(labels)} labels, not all of them digits: pass labels from 0 to 9")
    return images, labels


def has_digits(path: Path) -> bool:
    """True for a folder with idx files of images, or such a file."""
    return bool(_image_files(path)) if path.is_dir() else "idx3-ubyte" in path.name


def _image_files(folder: Path) -> list[Path]:
    """The folder's files of images; a packed file only if the unpacked one is missing."""
    by_name = {file.name.removesuffix(".gz"): file for file in sorted(folder.glob("*images?idx3-ubyte*"), reverse=True)}
    return [by_name[name] for name in sorted(by_name)]


def _pair(file: Path) -> tuple[Bytes, Bytes]:
    """A file's images, and their labels from the file beside it."""
    images = _read(file, _IMAGES)
    beside = file.with_name(file.name.replace("images", "labels").replace("idx3", "idx1"))
    if beside == file or not beside.exists():
        raise FileError(f"{file} has no labels beside it: name them {_NAMES}")
    labels = _read(beside, _LABELS)
    if len(images) != len(labels):
        raise InputError(f"{file} has {len(images)} images, {beside.name} {len(labels)} labels: use files of one set")
    return images, labels


def _read(path: Path, magic: int) -> NDArray[Any]:
    """The array of an idx file with that magic number."""
    content = _content(path)
    kind, start = "images" if magic == _IMAGES else "labels", 4 + 4 * (magic & 0xFF)
    number = int.from_bytes(content[:4], "big")
    if number != magic:
        raise FileError(f"{path} has magic number {number:#010x} instead of {magic:#010x}: pass an idx file of {kind}")
    if len(content) < start:
        raise FileError(f"{path} is truncated, {len(content)} bytes: download it again")
    shape = tuple(int(length) for length in np.frombuffer(content[4:start], dtype=">u4"))
    values = np.frombuffer(content, dtype=np.uint8, offset=start)
    if len(values) != math.prod(shape):
        raise FileError(
            f"{path} is truncated or damaged, {len(values):,} values instead of {math.prod(shape):,}: download it again"
        )
    return values.reshape(shape)


def _content(path: Path) -> bytes:
    content = read_bytes(path)
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path} can't be unpacked: {error}; download it again") from error
