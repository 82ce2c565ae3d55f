"""Checks before a long pass: images, class folders, accuracy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from agop.errors import FileError, InputError, ModelError, warn
from agop.processes import torchrun_rank
from agop.stats import at_chance

if TYPE_CHECKING:
    from torch import Tensor, nn

    from agop.cli.options import ModelOptions
    from agop.images.files import ImageFolder
    from agop.images.preprocessing import Preprocessing
    from agop.prior.agop import AGOP

# Images to look at, spread over the folder, and images read at once. `fit` decides how many are in the model at once.
_IMAGES, READ_BATCH = 128, 32
# Images that are enlarged by this factor or more: the model was probably trained at their own size.
_ENLARGED = 2


def open_images(data: Path, preprocessing: Preprocessing, all_samples: bool) -> ImageFolder:
    """The images of class folders; images without labels if they aren't needed and not all images are in folders."""
    from agop.images.files import ClassFolders, ImageFolder
    from agop.images.preprocessing import SUFFIXES

    if all_samples and data.is_dir() and any(path.suffix.lower() in SUFFIXES for path in data.iterdir()):
        return ImageFolder(data, preprocessing)
    try:
        return ClassFolders(data, preprocessing)
    except InputError as error:
        raise InputError(f"{error}, or pass --all-samples to count images without labels") from None


def look_at(
    images: ImageFolder,
    model: nn.Module,
    how: ModelOptions,
    *,
    all_samples: bool,
    names: Path | None,
    batch_size: int | None,
    force: bool,
) -> tuple[ImageFolder, int]:
    """The images and the model's number of classes, after all checks. The options are those of `agop fit`.

    If all samples count, folders that don't match the classes are ignored, and the images have no labels.
    """
    from agop.images.files import ClassFolders, ImageFolder, class_names
    from agop.model.probe import rows_for

    if how.size is None:
        _reject(enlargement(images), force)
    readable = next(iter(images.batches(batch_size or READ_BATCH)), None)
    if readable is None:
        raise InputError(f"none of the {len(images)} files in {images.folder} could be read as an image")
    classes = count_classes(model, readable[0][: rows_for(readable[0], batch_size, model)])
    if names is not None and isinstance(images, ClassFolders):
        images = images.with_classes(class_names(None, names, classes), classes)
    if not all_samples:
        _reject(wrong_folders(images, classes, ", or --all-samples to ignore labels"), force)
        _reject(chance(*_count_correct(model, images, batch_size), classes, images, how.weights), force)
    elif len(images.classes) not in (0, classes):
        _warn(f"{_mismatch(images, classes)}: images are counted without labels")
        images = ImageFolder(images.folder, images.preprocessing)
    return images, classes


def default_methods(model: nn.Module, image: Tensor, prior: AGOP | None) -> list[str]:
    """The method agop, or vanilla if agop needs a prior for this model and there is none. Prints which."""
    from agop.cli.printing import plain_console
    from agop.model.layers import fine_layer
    from agop.model.probe import probing

    if prior is not None:
        return ["agop"]
    with probing(model) as probe:
        name = "vanilla" if fine_layer(probe, image) is None else "agop"
    does = "also agop, a sharper map" if name == "vanilla" else "also agop-global, where the model looks in all images"
    plain_console().print(f"method: {name}. With a prior from `agop fit`, {does}")
    return [name]


def _reject(problem: str, force: bool) -> None:
    """Raise if there is a problem; warn instead with `force`."""
    if problem and not force:
        raise InputError(f"{problem} (--force fits anyway)")
    if problem:
        _warn(problem)


def enlargement(images: ImageFolder) -> str:
    """A problem if the images are much smaller than the model's input, else ""."""
    height, width = images.preprocessing.size
    sizes = _sizes(images)
    if not sizes or median(max(height / rows, width / columns) for rows, columns in sizes) < _ENLARGED:
        return ""
    rows, columns = (int(median(sides)) for sides in zip(*sizes, strict=True))
    return (
        f"the images are about {rows}×{columns}, and would be enlarged to {height}×{width}: pass the size used in "
        f"training, --size {rows}x{columns} or --size {height}x{width}"
    )


def mixed_sizes(images: ImageFolder) -> str:
    """A note if images have different sizes, else ""."""
    sizes = sorted(set(_sizes(images)), key=lambda size: size[0] * size[1])
    if len(sizes) < 2:
        return ""
    smallest, largest, size = (
        f"{rows}×{columns}" for rows, columns in (sizes[0], sizes[-1], images.preprocessing.size)
    )
    return f"the images have different sizes, {smallest} to {largest}: all are scaled and cropped to {size}"


def wrong_folders(images: ImageFolder, classes: int, other_fix: str = "") -> str:
    """A problem if the number of class folders isn't that of the model's classes, else ""."""
    from agop.images.files import class_folders

    if len(images.classes) == classes:
        return ""
    fix = (
        "pass a folder with one folder per class, in the order of the classes, or --names FILE with the names of all "
        f"classes{other_fix}"
    )
    inside = [images.folder / name for name in images.classes]
    if matching := [str(folder) for folder in inside if len(class_folders(folder)) == classes]:
        fix = f"did you mean {' or '.join(matching[:3])}, with {classes} folders?"
    return f"{_mismatch(images, classes)}: {fix}"


def chance(correct: int, seen: int, majority: int, classes: int, images: ImageFolder, weights: Path | None) -> str:
    """A problem if the accuracy is like chance, else ""."""
    if not at_chance(correct, seen, majority, classes):
        return ""
    forgotten = "did you forget --weights, " if weights is None else ""
    return (
        f"the model classifies {100 * correct / seen:.0f} % of {seen:,} images correctly, hardly better than chance "
        f"for {classes} classes, the largest with {majority:,} images: {forgotten}are size, mean and std as in "
        f"training, and are the class folders {_listed(images.classes)} its classes 0, 1, … in this order?"
    )


def _warn(message: str) -> None:
    """Warn, under torchrun only on rank 0."""
    if torchrun_rank()[0] == 0:
        warn(message)


def _mismatch(images: ImageFolder, classes: int) -> str:
    names = images.classes
    folders = f"{len(names)} class folder{'' if len(names) == 1 else 's'} ({_listed(names)})"
    return f"{images.folder} has {folders}, the model {classes} classes"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


def _sizes(images: ImageFolder) -> list[tuple[int, int]]:
    """Height and width of some images, spread over the folder, from their headers."""
    from agop.images.preprocessing import open_image

    sizes = []
    for path, _ in images.spread(_IMAGES).files:
        # An image that can't be read is reported when its pixels are read.
        with suppress(FileError), open_image(path) as image:
            sizes.append((image.height, image.width))
    return sizes


def count_classes(model: nn.Module, images: Tensor) -> int:
    """Number of the model's classes, from a pass over images (N,C,H,W). The error says if --gray is missing."""
    from agop.model.probe import number_of_classes

    try:
        return number_of_classes(model, images)
    except ModelError as error:
        if images.shape[1] == 3:
            with suppress(Exception):  # of the user's model
                number_of_classes(model, images[:, :1])
                error.args = ("the model takes images of one channel, these have 3 channels: pass --gray",)
        raise


def _count_correct(model: nn.Module, images: ImageFolder, batch_size: int | None) -> tuple[int, int, int]:
    """Of some images, spread over the class folders: how many are classified correctly, all, those of one class."""
    from agop.evaluation.scoring import all_logits
    from agop.model.outputs import predicted

    correct, seen, of_class = 0, 0, Counter[int]()
    for inputs, labels in images.spread(_IMAGES).batches(batch_size or READ_BATCH):
        if seen and batch_size is not None and len(inputs) < batch_size:
            continue  # an exported model may take full batches only
        correct += int(predicted(all_logits(model, inputs, batch_size)).eq(labels).sum())
        seen += len(inputs)
        of_class.update(labels.tolist())
    return correct, seen, max(of_class.values(), default=0)
