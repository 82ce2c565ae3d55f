"""Data sets on disk: MNIST, CIFAR-10, photographs, and images with masks."""

import codecs
import gzip
import io
import math
import pickle
import re
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps
from torch import Tensor

from agop.errors import FileError, InputError, warn
from agop.images.files import class_folders, folder_classes, image_files
from agop.images.preprocessing import Preprocessing, open_image
from agop.io import read_bytes
from agop.processes import track

Bytes = NDArray[np.uint8]
_VALUES = 3 * 32 * 32
_BATCH = re.compile(r"(data_batch_\d+|test_batch)(\.bin)?")
# Everything that a batch of the python version needs. Any other name in a pickle could run code.
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
}
# Magic numbers of idx files of bytes with three dimensions and with one.
_IMAGES, _LABELS = 0x803, 0x801
_NAMES = "train-images-idx3-ubyte and train-labels-idx1-ubyte, also with .gz"


def batches(folder: Path) -> list[Path]:
    """The files of CIFAR-10 in a folder: data_batch_1 … test_batch, or with .bin."""
    return sorted(path for path in folder.iterdir() if _BATCH.fullmatch(path.name))


def read_folder(folder: Path) -> tuple[Bytes, Bytes]:
    """Images (N,32,32,3) and labels (N,) of all files of CIFAR-10 in a folder."""
    images, labels = zip(*map(_read_batch, batches(folder)), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _read_batch(path: Path) -> tuple[Bytes, Bytes]:
    """Images (N,32,32,3) and labels (N,) of one file: a pickled dict, or records of a label and its values."""
    content = read_bytes(path)
    if path.suffix == ".bin":
        if not content or len(content) % (1 + _VALUES):
            raise FileError(f"{path} has {len(content):,} bytes, not a multiple of {1 + _VALUES}: download it again")
        records = np.frombuffer(content, np.uint8).reshape(-1, 1 + _VALUES)
        rows, labels = records[:, 1:], records[:, 0]
    else:
        rows, labels = _from_pickle(content, path)
    return np.asarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels


def _from_pickle(content: bytes, path: Path) -> tuple[Bytes, Bytes]:
    """Rows (N,3072) and labels (N,) of a pickled dict, read without running any code of the file."""
    try:
        batch: Any = _Reader(io.BytesIO(content), encoding="bytes").load()
        rows, labels = batch[b"data"], np.array(batch[b"labels"], np.uint8)
    except Exception as error:  # whatever a damaged pickle raises
        raise FileError(f"{path} is neither an .npz file nor a batch of CIFAR-10: {error}") from error
    if getattr(rows, "dtype", None) != np.uint8 or rows.shape != (len(labels), _VALUES):
        raise FileError(f"{path} has no images of CIFAR-10, bytes (N,{_VALUES}) with a label each: download it again")
    return rows, labels


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """An allowed name. Raises UnpicklingError for all others."""
        key = module.replace("numpy._core", "numpy.core"), name
        if key not in _ALLOWED:
            raise pickle.UnpicklingError(f"it needs {module}.{name}, which could run code")
        return _ALLOWED[key]


def read_digits(path: Path) -> tuple[Bytes, Bytes]:
    """Images (N,H,W) and labels (N,) of a file of images, whose labels are beside it, or of all files in a folder."""
    if not path.exists():
        raise FileError(f"{path} doesn't exist: pass a folder with {_NAMES}")
    files = _image_files(path) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} has no idx files: it needs {_NAMES}")
    pairs = []
    for file in files:
        beside = file.with_name(file.name.replace("images", "labels").replace("idx3", "idx1"))
        if beside == file or not beside.exists():
            raise FileError(f"{file} has no labels beside it: name them {_NAMES}")
        images, labels = _read(file, _IMAGES), _read(beside, _LABELS)
        if len(images) != len(labels):
            raise InputError(
                f"{file} has {len(images)} images, {beside.name} {len(labels)} labels: use files of one set"
            )
        pairs.append((images, labels))
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


def _read(path: Path, magic: int) -> NDArray[Any]:
    """The array of an idx file with that magic number."""
    content = read_bytes(path)
    try:
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path} can't be unpacked: {error}; download it again") from error
    kind, start = "images" if magic == _IMAGES else "labels", 4 + 4 * (magic & 0xFF)
    number = int.from_bytes(content[:4], "big")
    if number != magic:
        raise FileError(f"{path} has magic number {number:#010x} instead of {magic:#010x}: pass an idx file of {kind}")
    shape = np.frombuffer(content[4:start], dtype=">u4").tolist() if len(content) >= start else []
    if not shape or len(content) - start != math.prod(shape):
        expected = f" instead of {math.prod(shape):,}" if shape else ""
        raise FileError(
            f"{path} is truncated or damaged, {max(len(content) - start, 0):,} values{expected}: download it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def has_cells(path: Path | None) -> bool:
    """True for the folder of ELPV: photographs of solar cells, with labels.csv."""
    return path is not None and (path / "labels.csv").is_file()


def read_cells(folder: Path, side: int) -> tuple[Bytes, NDArray[np.int64], NDArray[np.str_]]:
    """Solar cells (N,side,side,3), 1 for a defect that is at least as likely as not (N,), and types (N,): mono or poly.

    ELPV (Buerhop-Lutz et al. 2018, "A Benchmark for Visual Identification of Defective Solar Cells", CC BY-NC-SA 4.0).
    """
    path = folder / "labels.csv"
    rows = [line.split() for line in read_bytes(path).decode(errors="replace").splitlines() if line.strip()]
    try:
        defects = np.array([float(chance) >= 0.5 for _, chance, _ in rows], np.int64)
    except ValueError as error:
        raise FileError(f"{path} isn't that of ELPV, lines of file, probability of a defect, type: {error}") from error
    preprocessing = Preprocessing((side, side))
    images = np.stack([np.asarray(preprocessing.picture(folder / name)) for name, _, _ in rows])
    return images, defects, np.array([kind for *_, kind in rows])


_FORMS = "a folder of images, an .npz with images (N,H,W,3), or CIFAR-10's folder cifar-10-batches-py or -bin"


def read_photos(path: Path, size: int, most: int) -> Bytes:
    """Photographs (N,size,size,3), scaled to their shorter side and cropped. Of more than `most`, evenly spaced ones.

    The path is a folder of images (class folders are read as well), an .npz, or CIFAR-10's folder or one of its files.
    """
    if path.is_dir():
        return _resized(read_folder(path)[0], size, most) if batches(path) else _from_files(path, size, most)
    if not path.exists():
        raise FileError(f"{path} doesn't exist: pass {_FORMS}")
    return _resized(_from_npz(path) if path.suffix == ".npz" else _read_batch(path)[0], size, most)


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


@dataclass(frozen=True)
class ImageMaskPairs:
    """Images (N,C,H,W), class names, and file names relative to the folder; masks (N,H,W) and labels (N,) or None."""

    images: Tensor
    masks: Tensor | None
    labels: Tensor | None
    classes: tuple[str, ...]
    names: tuple[str, ...]


def load_image_mask_pairs(
    pictures: Path,
    masks: Path | None,
    preprocessing: Preprocessing,
    threshold: int | None = None,
    first: int | None = None,
    classes: Sequence[str] = (),
    num_classes: int | None = None,
) -> ImageMaskPairs:
    """Images below a folder, each with the mask of the same name below the other. Labels come from class folders.

    Without a folder of masks, only images are read. Without a threshold a mask has two values, and 0 is outside.
    `classes` are the names of the model's classes in order. Without them, there must be a folder for each of
    `num_classes` classes.
    """
    files = _pairs(pictures, masks)[:first]
    class_names, labels = _labels([picture for picture, _ in files], pictures, classes, num_classes)
    images, inside, rows = [], [], []
    for row, (picture, mask) in enumerate(track(files, "reading")):
        try:
            images.append(preprocessing.tensor(preprocessing.picture(picture)))
        except FileError as error:
            warn(f"skipped: {error}")
            continue
        if mask is not None:
            inside.append(_mask(mask, picture, preprocessing, threshold))
        rows.append(row)
    if not images:
        raise InputError(f"none of the {len(files)} files in {pictures} could be read as an image")
    names = tuple(files[row][0].relative_to(pictures).as_posix() for row in rows)
    readable = None if labels is None else torch.tensor(labels)[rows]
    return ImageMaskPairs(torch.stack(images), torch.stack(inside) if inside else None, readable, class_names, names)


def _pairs(pictures: Path, masks: Path | None) -> Sequence[tuple[Path, Path | None]]:
    """Each image with its mask, which has the same relative path, up to the suffix."""
    for folder in (pictures, masks):
        if folder is not None and not folder.is_dir():
            raise FileError(f"{folder} is not a folder: pass one of images, and one of masks with the same names")
    files = image_files(pictures)
    if masks is None:
        return [(path, None) for path in files]
    by_name: dict[Path, Path] = {}
    for path in image_files(masks):
        name = path.relative_to(masks).with_suffix("")
        if name in by_name:
            raise InputError(f"{by_name[name]} and {path} are masks of the same image: remove one of them")
        by_name[name] = path
    pairs = [(path, by_name[name]) for path in files if (name := path.relative_to(pictures).with_suffix("")) in by_name]
    if not pairs:
        raise InputError(f"no image in {pictures} has a mask in {masks}: a mask needs the relative path of its image")
    if len(pairs) < len(files):
        warn(f"{len(files) - len(pairs)} of {len(files)} images have no mask in {masks}: skipped")
    return pairs


def _labels(
    files: Sequence[Path], folder: Path, classes: Sequence[str], num_classes: int | None
) -> tuple[tuple[str, ...], list[int] | None]:
    """Class names and a label per file; no names and None unless every image is in a folder of a known class."""
    if any(len(path.relative_to(folder).parts) < 2 for path in files):
        return (), None
    folders = [path.relative_to(folder).parts[0] for path in files]
    all_folders = class_folders(folder)
    index = folder_classes(all_folders, classes, len(all_folders) if num_classes is None else num_classes)
    if unknown := sorted(set(folders) - index.keys()):
        listed = ", ".join(classes[:5])
        warn(f"{folder / unknown[0]} isn't one of the model's classes ({listed}): accuracy won't be reported")
        return (), None
    return tuple(classes or all_folders), [index[name] for name in folders]


def _mask(path: Path, picture: Path, preprocessing: Preprocessing, threshold: int | None) -> Tensor:
    """A mask (H,W), scaled and cropped like its image."""
    with open_image(picture) as image:  # only its header: decoding it again would be slow
        rotated = image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
        height, width = (image.width, image.height) if rotated else (image.height, image.width)
    with open_image(path, "a mask") as file:
        upright = ImageOps.exif_transpose(file)
    mask = _levels(upright, path)
    if mask.shape != (height, width):
        raise InputError(
            f"{path} is {mask.shape[0]}×{mask.shape[1]}, its image {height}×{width} (height×width): "
            "masks need the size of their image"
        )
    values = np.unique(mask)
    if threshold is None and (len(values) > 2 or (len(values) == 2 and values[0] != 0)):
        raise InputError(
            f"{path} has {len(values)} values from {values[0]} to {values[-1]}: use masks with two values, 0 outside, "
            "or pass --threshold, the smallest value inside"
        )
    inside = Image.fromarray(np.asarray(255 * (mask >= (threshold or 1)), dtype=np.uint8))
    return torch.from_numpy(np.asarray(preprocessing.cut(inside, Image.Resampling.NEAREST)) > 0)


def _levels(mask: Image.Image, path: Path) -> NDArray[Any]:
    """Values (H,W) of a mask as stored: palette indices, 16 bits, or the largest channel."""
    if "A" in mask.getbands() and len(set(mask.getchannel("A").getextrema())) > 1:
        raise InputError(f"{path} has transparency, so inside and outside are ambiguous: save it in black and white")
    if len(mask.getbands()) > 1:
        return np.asarray(np.asarray(mask.convert("RGB")).max(axis=-1))
    return np.asarray(mask, dtype=np.float64 if mask.mode == "F" else np.int64)
