"""suspect(): which classes a change of the images raises, such as a watermark, beside controls."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agop.auditing.data import class_label, image_batches
from agop.auditing.regions import box_of
from agop.auditing.thresholds import THRESHOLDS
from agop.errors import InputError, ModelError
from agop.images.overlays import data_uri, pixels
from agop.images.preprocessing import Preprocessing, open_image
from agop.io import write_atomically
from agop.model.outputs import check_range
from agop.model.probe import Probe, probing, rows_for
from agop.processes import track
from agop.stats import Columns, column_means, finite, holm, p_beyond, quantile
from agop.tables import Table
from agop.web import environment, scripts, styles

Change = Callable[[Tensor], Tensor]
TOP_LEFT, ANYWHERE, TILED = PLACES = ("top-left", "anywhere", "tiled")
# Shuffled copies of a change, and images that a test needs. With 8 of each, marks without a shape had no false alarm in
# 400 suspicions of two ImageNet networks, and 8 images found a watermark that raises a logit by 7 in 17 %, 20 images in
# all cases.
_SHUFFLED, _FEWEST = 8, 8
# Images, and classes, that the page shows.
_SHOWN, _CLASSES = 4, 20


@dataclass(frozen=True, eq=False)
class Mark:
    """A picture (C+1,h,w) in 0..1, the last channel its opacity, that is put on images with this preprocessing.

    `place` is "top-left", "anywhere" (a random place in each image, by the seed) or "tiled".
    """

    picture: Tensor
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    place: str = TOP_LEFT
    seed: int = 0

    def __post_init__(self) -> None:
        if self.place not in PLACES:
            raise InputError(f"place is {self.place!r}: give {', '.join(PLACES)}")
        if self.picture.ndim != 3 or not self.picture[-1:].any():
            shape = tuple(self.picture.shape)
            raise InputError(f"the mark, of shape {shape}, is invisible: give (C+1,h,w) with an opacity above 0")

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], preprocessing: Preprocessing, place: str = TOP_LEFT, seed: int = 0
    ) -> Mark:
        """The mark of an image file with transparency, in pixels of the model's input."""
        with open_image(path) as file:
            mode, opaque = file.mode, not file.has_transparency_data
            values = np.asarray(file.convert("RGBA").convert("LA" if preprocessing.gray else "RGBA"))
        if opaque:
            raise InputError(f"{path} has no transparency (mode {mode}): save the mark as a PNG with alpha, RGBA")
        return cls(torch.tensor(values).permute(2, 0, 1) / 255, preprocessing, place, seed)

    def rearranged(self, rearrange: Callable[[Tensor], Tensor]) -> Mark:
        """The mark with its visible box (C+1,h,w) rearranged."""
        picture, box = self.picture.clone(), box_of(self.picture[-1] > 0)
        place = slice(None), slice(box.top, box.bottom), slice(box.left, box.right)
        picture[place] = rearrange(picture[place])
        return replace(self, picture=picture)

    def coloured(self, signs: Sequence[int]) -> Mark:
        """The mark with the channels inverted that have the sign −1."""
        colours = self.picture[:-1]
        inverted = torch.where(torch.tensor(signs)[:, None, None] > 0, colours, 1 - colours)
        return replace(self, picture=torch.cat([inverted, self.picture[-1:]]))

    def __call__(self, images: Tensor) -> Tensor:
        """The images with the mark."""
        channels, rows, columns = self.picture.shape
        if channels != images.shape[1] + 1:
            raise InputError(
                f"the mark has {channels - 1} colours, the images {images.shape[1]} channels: use one number"
            )
        height, width = images.shape[2:]
        if rows > height or columns > width:
            raise InputError(f"the mark has {rows}×{columns} pixels, the images {height}×{width}: make it smaller")
        if self.place == TILED:
            layer = self.picture.repeat(1, -(-height // rows), -(-width // columns))[None, :, :height, :width]
        else:
            corners = torch.zeros(1, 2)
            if self.place == ANYWHERE:
                corners = torch.rand(len(images), 2, generator=torch.Generator().manual_seed(self.seed))
                corners *= torch.tensor([height - rows + 1, width - columns + 1])
            layer = torch.zeros(len(corners), channels, height, width)
            for each, (top, left) in zip(layer, corners.long().tolist(), strict=True):
                each[:, top : top + rows, left : left + columns] = self.picture
        layer = layer.to(images)
        mean, std = (
            images.new_tensor(part)[:, None, None] for part in (self.preprocessing.mean, self.preprocessing.std)
        )
        opacity = layer[:, -1:]
        return opacity * (layer[:, :-1] - mean) / std + (1 - opacity) * images


@dataclass(frozen=True, eq=False)
class Rearranged:
    """A change whose added values (C,h,w) are rearranged, in the smallest box around them in each image.

    The result stays within the values of the images and of the change.
    """

    change: Change
    rearrange: Callable[[Tensor], Tensor]

    def __call__(self, images: Tensor) -> Tensor:
        """The images with the rearranged values."""
        changed, result = self.change(images.clone()), images.clone()
        for image, added in zip(result, changed - images, strict=True):
            inside = (added != 0).any(dim=0)
            if inside.any():
                box = box_of(inside)
                place = slice(None), slice(box.top, box.bottom), slice(box.left, box.right)
                image[place] += self.rearrange(added[place])
        return result.clamp(min(images.min(), changed.min()), max(images.max(), changed.max()))


def copies(change: Change, channels: int, seed: int) -> tuple[dict[str, Change], dict[str, Change]]:
    """Copies of a change: shuffled, which are tested against, and mirrored or in other colours, which are reported.

    Of a mark, its pixels; of another change, what it adds to the images.
    """

    def shuffle(number: int, values: Tensor) -> Tensor:
        random = torch.Generator().manual_seed(seed * _SHUFFLED + number)
        return values.flatten(1)[:, torch.randperm(values[0].numel(), generator=random)].reshape(values.shape)

    def invert(signs: Sequence[int], values: Tensor) -> Tensor:
        return values * values.new_tensor(signs)[:, None, None]

    own = change if isinstance(change, Mark) else None
    rearranged: Any = partial(Rearranged, change) if own is None else own.rearranged
    coloured: Any = (lambda signs: rearranged(partial(invert, signs))) if own is None else own.coloured
    shuffled = {f"shuffled {number}": rearranged(partial(shuffle, number)) for number in range(1, 1 + _SHUFFLED)}
    flips = {"mirrored": 2, "upside down": 1}
    alike = {name: rearranged(partial(torch.flip, dims=(dim,))) for name, dim in flips.items()}
    alike["inverted"] = coloured([-1] * channels)
    if channels == 3:
        for name, signs in {"red": (1, -1, -1), "green": (-1, 1, -1), "blue": (-1, -1, 1)}.items():
            alike[f"{name} kept, others inverted"] = coloured(signs)
    return shuffled, alike


@dataclass(frozen=True, repr=False)
class Suspicion:
    """Which classes a change of the images raises.

    `table` has a row per class of the model, those that are raised most, beyond the controls, first: the mean `change`
    of the logit with its 95 % `interval`, that of P(class), the largest mean change by a `control`, and the corrected
    `p`. `copies` has a row per control. Logits are those minus their mean over the classes, as a number added to all
    logits changes nothing. `accuracy` is that before and after the change, None without labels; `turned` the share of
    the images that are predicted as another class. A rise of `detectable` would have been found in half of the cases.
    """

    subject: str
    table: tuple[dict[str, Any], ...]
    copies: tuple[dict[str, Any], ...]
    accuracy: tuple[float, float] | None
    turned: float
    images: int
    detectable: float
    pictures: dict[str, Tensor] = field(repr=False)

    @property
    def raised(self) -> list[dict[str, Any]]:
        """The rows of the classes that are raised more than by the controls."""
        return [row for row in self.table if row["p"] < THRESHOLDS.level]

    @property
    def sentence(self) -> str:
        """What the change does, in plain words."""
        top, more = self.table[0], len(self.raised) - 1
        change, low, high, control = (
            f"{value:+.1f}".replace("-", "−") for value in (top["change"], *top["interval"], top["control"])
        )
        figures = f"most of {len(self.table):,} classes: logit {change} [{low}, {high}], controls {control} at most."
        if self.raised:
            text = f"{self.subject} raises {class_label(top['class'])} {figures}"
            text += f" {more:,} more classes are raised more than by the controls." if more else ""
        else:
            text = "No class is raised more than by the controls."
            if top["interval"][0] > 0:
                text += f" {self.subject} and its controls raise {class_label(top['class'])}, {figures}"
            text += f" A rise by {self.detectable:.1f} beyond the controls would have been found in half of the cases."
        if self.accuracy is not None:
            before, after = (f"{100 * share:.0f} %" for share in self.accuracy)
            text += f" The accuracy is {before} before and {after} after."
        return f"{text} {100 * self.turned:.0f} % of {self.images:,} images get another class."

    def summary(self) -> str:
        """Text for a terminal: the sentence, the first rows of the table, and what the controls do."""
        return "\n".join([self.sentence, *self.first_classes(5).text(), "", *self.controls().text()])

    def first_classes(self, count: int) -> Table:
        """The first rows of the table as text."""
        return _as_text(_COLUMNS, self.table[:count])

    def controls(self) -> Table:
        """The rows of the controls as text."""
        columns = dict(list(_COPIES.items())[: len(_COPIES) - (self.accuracy is None)])
        return _as_text(columns, self.copies)

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        names = ("sentence", "accuracy", "turned", "images", "copies")
        values = {name: getattr(self, name) for name in names}
        return {"agop": "suspicion", **values, "detectable": finite(self.detectable), "table": list(self.table)}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write suspicion.json, suspicion.csv and index.html."""
        path = Path(folder)
        if path.exists() and not path.is_dir():
            raise InputError(f"{folder} is a file: give a folder")
        write_atomically(path / "suspicion.json", json.dumps(self.to_dict(), indent=1, allow_nan=False).encode())
        write_atomically(path / "suspicion.csv", self.first_classes(len(self.table)).csv().encode())
        values = torch.stack([*self.pictures.values()])
        low, high = ([float(end)] * values.shape[2] for end in values.aminmax())
        page = environment(__package__).get_template("suspicion.html").render(
            styles=styles(__package__, "audit"), scripts=scripts(__package__), suspicion=self,
            tables=[self.first_classes(_CLASSES), self.controls()],
            pictures={name: list(map(data_uri, pixels(images, low, high))) for name, images in self.pictures.items()},
        )  # fmt: skip
        write_atomically(path / "index.html", page.encode(errors="replace"))

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return f"<div>{''.join(f'<p>{html.escape(line)}</p>' for line in self.summary().splitlines())}</div>"


# Key of a row → title and format of its column.
_COLUMNS = {
    "class": ("class", "{}"), "change": ("logit", "{:+.2f}"),
    "interval": ("95 % interval", "{0[0]:+.2f} to {0[1]:+.2f}"), "control": ("strongest control", "{:+.2f}"),
    "probability": ("P(class)", "{:+.3f}"), "p": ("p", "{:.2g}"),
}  # fmt: skip
_COPIES = {
    "name": ("control", "{}"), "change": ("logit of the first class", "{:+.2f}"), "rank": ("its rank", "{:,}"),
    "raised": ("raises most", "{}"), "most": ("by", "{:+.2f}"), "accuracy": ("accuracy", "{:.0%}"),
}  # fmt: skip


def _as_text(columns: Mapping[str, tuple[str, str]], rows: Sequence[Mapping[str, Any]]) -> Table:
    titles = [title for title, _ in columns.values()]
    return Table(titles, [[form.format(row[key]) for key, (_, form) in columns.items()] for row in rows])


def suspect(
    model: nn.Module,
    images: Tensor | Iterable[Any],
    change: Change,
    labels: Any = None,
    controls: Sequence[Change] | Mapping[str, Change] | None = None,
    *,
    class_names: Sequence[str] = (),
    batch_size: int | None = None,
    progress: bool = True,
    seed: int = 0,
) -> Suspicion:
    """Which classes a change raises, of all classes of a model, beside controls: a `Suspicion`.

    Args:
        model: The classifier.
        images: A tensor (N,C,H,W), or a loader of images, or of (images, labels), which is read once. Any classes.
        change: What is suspected: a function from images (N,C,H,W) to changed images, for example a `Mark`.
        labels: Classes (N,) of a tensor of images, for the accuracy.
        controls: Other changes that a class must be raised beyond, as a list or by name. By default eight copies of the
            change with its pixels shuffled; mirrored copies, and copies in other colours, are reported.
        class_names: Names of the classes, for sentences.
        batch_size: Images per pass.
        progress: Show a progress bar.
        seed: Chooses the shuffled copies.

    Returns:
        A `Suspicion`: a `table` of all classes, the `accuracy` before and after, and a `sentence`.

    Raises:
        InputError: Images, labels or class names can't be used, or the change returns other shapes or changes nothing.
        ModelError: The model's outputs are NaN.

    Example:
        >>> suspicion = agop.suspect(model, images, lambda x: x.roll(3, dims=3))
        >>> print(suspicion.sentence)

    Li et al. 2023, "A Whac-A-Mole Dilemma: Shortcuts Come in Multiples Where Mitigating One Amplifies Others".
    """
    tested = None if controls is None else _named(controls)
    for name, each in {"change": change, **(tested or {})}.items():
        if not callable(each):
            raise InputError(f"{name} is a {type(each).__name__}: give a function from images to changed images")
    logits, seen, pictures = dict[str, list[Tensor]](), list[Tensor](), dict[str, Tensor]()
    alike, altered = dict[str, Change](), False
    with probing(model) as probe:
        batches = image_batches(images, labels, labelled=False)
        for batch, of_batch, _ in track(batches, "changing images", show=progress):
            if tested is None:
                tested, alike = copies(change, batch.shape[1], seed)
            changes: dict[str, Change] = {"before": torch.clone, "change": change, **tested, **alike}
            for name, each in changes.items():
                changed = _changed(each, batch, name)
                altered |= name == "change" and not torch.equal(changed, batch)
                logits.setdefault(name, []).append(_logits(probe, changed, rows_for(batch, batch_size, model), name))
                if len(pictures) < 3 and name in ("before", "change", next(iter(tested))):
                    pictures[name] = changed[:_SHOWN].float()
            if of_batch is not None:
                check_range(of_batch, logits["before"][0].shape[1], "label")
                seen.append(of_batch)
    joined = {name: torch.cat(parts).numpy() for name, parts in logits.items()}
    count, classes = joined["before"].shape if joined else (0, 0)
    if count < _FEWEST:
        raise InputError(f"there are {count} images: give at least {_FEWEST}")
    if not altered:
        raise InputError("the change leaves all images as they are: give another one")
    if class_names and len(class_names) != classes:
        raise InputError(f"there are {len(class_names)} class names, the model has {classes} classes: one per class")
    names = class_names or [f"class {index}" for index in range(classes)]
    table, detectable = _table(joined, list(tested or ()), names, sampled=controls is None)
    truth = torch.cat(seen).numpy() if sum(map(len, seen)) == count else None
    predictions = {name: values.argmax(axis=1) for name, values in joined.items()}
    shares = {} if truth is None else {name: float((each == truth).mean()) for name, each in predictions.items()}
    rows, first = [], table[0]["class_index"]
    for name in (*(tested or ()), *alike):
        mean = (_centred(joined[name]) - _centred(joined["before"])).mean(axis=0)
        change_of, most = float(mean[first]), int(mean.argmax())
        row = {
            "name": name,
            "tested": name not in alike,
            "change": change_of,
            "rank": 1 + int((mean > change_of).sum()),
        }
        rows.append(row | {"raised": names[most], "most": float(mean[most]), "accuracy": shares.get(name)})
    turned = float((predictions["change"] != predictions["before"]).mean())
    subject, accuracy = "The mark" if isinstance(change, Mark) else "The change", None
    if shares:
        accuracy = shares["before"], shares["change"]
    return Suspicion(subject, tuple(table), tuple(rows), accuracy, turned, count, detectable, pictures)


def _named(controls: Sequence[Change] | Mapping[str, Change]) -> dict[str, Change]:
    if not controls:
        raise InputError("controls are empty: give at least one change, or None for shuffled copies")
    if isinstance(controls, Mapping):
        return dict(controls)
    return {f"control {number}": each for number, each in enumerate(controls, 1)}


def _table(
    logits: Mapping[str, Columns], tested: Sequence[str], names: Sequence[str], *, sampled: bool
) -> tuple[list[dict[str, Any]], float]:
    """A row per class, the most raised first, and the rise that is found in half of the cases.

    A p value is the larger of two: over the images, and over the controls if they are `sampled` from many.
    """
    from scipy.special import softmax

    count, classes = logits["before"].shape
    moved = {name: _centred(logits[name]) - _centred(logits["before"]) for name in ("change", *tested)}
    means = np.stack([moved[name].mean(axis=0) for name in tested])
    strongest = np.stack([moved[name] for name in tested])[means.argmax(axis=0), :, np.arange(classes)].T
    # To leave the images as they are is a control as well: a class that shuffled copies lower isn't raised by that.
    excess, _, error, ps = column_means(moved["change"] - np.where(means.max(axis=0) > 0, strongest, 0))
    if sampled:
        ps = np.maximum(ps, p_beyond(moved["change"].mean(axis=0), means))
    change, reach, _, _ = column_means(moved["change"])
    rise = (softmax(logits["change"], axis=1) - softmax(logits["before"], axis=1)).mean(axis=0)
    corrected = holm(ps.tolist())
    significant = np.array(corrected) < THRESHOLDS.level
    order = np.lexsort((-np.where(significant, excess, change), ~significant)).tolist()
    means_of = {"change": change, "control": means.max(axis=0), "excess": excess, "probability": rise}
    table = [
        {"class_index": index, "class": names[index], "p": corrected[index]}
        | {name: float(values[index]) for name, values in means_of.items()}
        | {"interval": [float(change[index] - reach[index]), float(change[index] + reach[index])]}
        for index in order
    ]
    return table, quantile(THRESHOLDS.level / classes, count - 1) * float(np.median(error))


def _changed(change: Change, images: Tensor, name: str) -> Tensor:
    """The changed images. Raise unless they have the shape of the images, and finite values."""
    changed = change(images.clone())
    if not isinstance(changed, Tensor) or changed.shape != images.shape:
        returned = tuple(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
        raise InputError(f"{name} returns {returned} for images {tuple(images.shape)}: return a tensor of their shape")
    if not changed.isfinite().all():
        raise InputError(f"{name} returns NaN or infinite values: return finite images")
    return changed.detach()


def _logits(probe: Probe, images: Tensor, rows: int, name: str) -> Tensor:
    """Logits (N,K) in float64 on the CPU. Raise if some are NaN. A single logit z counts as the logits (0, z)."""
    logits = torch.cat([probe.logits(part).cpu().double() for part in torch.split(images, rows)])
    if not logits.isfinite().all():
        raise ModelError(f"the model's outputs are NaN or infinite ({name}): check its weights and its number format")
    return torch.cat([torch.zeros_like(logits), logits], dim=1) if logits.shape[1] == 1 else logits


def _centred(logits: Columns) -> Columns:
    return np.asarray(logits - logits.mean(axis=1, keepdims=True))
