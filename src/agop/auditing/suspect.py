"""suspect(): which classes a change of the images raises, such as a watermark, beside controls."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
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
from agop.stats import holm, quantile
from agop.tables import Table
from agop.web import environment, scripts, styles

Change = Callable[[Tensor], Tensor]
Columns = NDArray[np.float64]
TOP_LEFT, ANYWHERE, TILED = PLACES = ("top-left", "anywhere", "tiled")
# Share of a mark's visible pixels that a shuffled copy must change: those of a dot of one colour are the dot.
_CHANGED = 0.25
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
        if not self.picture[-1].any():
            raise InputError("the mark is invisible: its opacity is 0 everywhere")
        if self.place != TOP_LEFT:  # transparent margins would keep it where it is
            box = box_of(self.picture[-1] > 0)
            object.__setattr__(self, "picture", self.picture[:, box.top : box.bottom, box.left : box.right])

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

    def __call__(self, images: Tensor) -> Tensor:
        """The images with the mark."""
        (count, channels, height, width), picture = images.shape, self.picture
        if len(picture) != channels + 1:
            raise InputError(f"the mark has {len(picture) - 1} colours, the images {channels} channels: use one number")
        rows, columns = picture.shape[1:]
        if rows > height or columns > width:
            raise InputError(f"the mark has {rows}×{columns} pixels, the images {height}×{width}: make it smaller")
        if self.place == TILED:
            rows, columns, picture = height, width, picture.repeat(1, -(-height // rows), -(-width // columns))
        corners = torch.rand(count, 2, generator=torch.Generator().manual_seed(self.seed)) * (self.place == ANYWHERE)
        layer = torch.zeros(count, channels + 1, height, width)
        for each, (top, left) in zip(
            layer, corners * torch.tensor([height - rows + 1, width - columns + 1]), strict=True
        ):
            each[:, int(top) : int(top) + rows, int(left) : int(left) + columns] = picture[:, :height, :width]
        layer, ends = layer.to(images), (self.preprocessing.mean, self.preprocessing.std)
        mean, std = (images.new_tensor(part)[:, None, None] for part in ends)
        return layer[:, -1:] * (layer[:, :-1] - mean) / std + (1 - layer[:, -1:]) * images

    def copies(self, seed: int) -> tuple[dict[str, Change], dict[str, Change]]:
        """The mark with its pixels shuffled, in its visible box, and mirrored or in other colours.

        Without shuffled copies if most of them is the mark itself: a dot of one colour.
        """
        box, colours = box_of(self.picture[-1] > 0), self.picture[:-1]
        place = slice(None), slice(box.top, box.bottom), slice(box.left, box.right)

        def with_box(inside: Tensor) -> Mark:
            picture = self.picture.clone()
            picture[place] = inside
            return replace(self, picture=picture)

        def inverted(kept: Sequence[int]) -> Mark:
            turned = [each if channel in kept else 1 - each for channel, each in enumerate(colours)]
            return replace(self, picture=torch.stack([*turned, self.picture[-1]]))

        inside, shuffled = self.picture[place], dict[str, Change]()
        for number in range(1, 1 + _SHUFFLED):
            random = torch.Generator().manual_seed(seed * _SHUFFLED + number)
            order = torch.randperm(inside[0].numel(), generator=random)
            moved = inside.flatten(1)[:, order].reshape(inside.shape)
            if float((moved != inside).any(dim=0)[inside[-1] > 0].double().mean()) < _CHANGED:
                shuffled.clear()
                break
            shuffled[f"shuffled {number}"] = with_box(moved)
        alike: dict[str, Change] = {"mirrored": with_box(inside.flip(2)), "upside down": with_box(inside.flip(1))}
        kinds = {"inverted": (), **({"red": (0,), "green": (1,), "blue": (2,)} if len(colours) == 3 else {})}
        return shuffled, alike | {f"{name} kept" if kept else name: inverted(kept) for name, kept in kinds.items()}


_PLAIN = "The mark, which has one colour,"


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
            text += f" A rise by {self.detectable:.2g} beyond the controls would have been found in half of the cases."
        if self.subject == _PLAIN:
            text += " It has no shuffled copies, which would look the same: the images as they are count as controls."
        if self.accuracy is not None:
            before, after = (f"{100 * share:.0f} %" for share in self.accuracy)
            text += f" The accuracy is {before} before and {after} after."
        return f"{text} {100 * self.turned:.0f} % of {self.images:,} images get another class."

    def summary(self) -> str:
        """Text for a terminal: the sentence, the first rows of the table, and what the controls do."""
        tables = _as_text(_COLUMNS, self.table[:5]), _as_text(_COPIES, self.copies)
        return "\n".join([self.sentence, *tables[0].text(), "", *tables[1].text()])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write suspicion.json, suspicion.csv and index.html."""
        path = Path(folder)
        if path.exists() and not path.is_dir():
            raise InputError(f"{folder} is a file: give a folder")
        names = ("sentence", "accuracy", "turned", "images", "detectable", "copies", "table")
        values = {"agop": "suspicion", **{name: getattr(self, name) for name in names}}
        write_atomically(path / "suspicion.json", json.dumps(values, indent=1, allow_nan=False).encode())
        write_atomically(path / "suspicion.csv", _as_text(_COLUMNS, self.table).csv().encode())
        shown = torch.stack([*self.pictures.values()])
        low, high = ([float(end)] * shown.shape[2] for end in shown.aminmax())
        page = environment(__package__).get_template("suspicion.html").render(
            styles=styles(__package__, "audit"), scripts=scripts(__package__), suspicion=self,
            tables=[_as_text(_COLUMNS, self.table[:_CLASSES]).html(), _as_text(_COPIES, self.copies).html()],
            pictures={name: list(map(data_uri, pixels(images, low, high))) for name, images in self.pictures.items()},
        )  # fmt: skip
        write_atomically(path / "index.html", page.encode(errors="replace"))

    __repr__ = summary


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
    return Table(
        titles,
        [["–" if row[key] is None else form.format(row[key]) for key, (_, form) in columns.items()] for row in rows],
    )


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
        controls: Other changes that a class must be raised beyond, as a list or by name. By default eight copies of a
            mark with its pixels shuffled; mirrored copies, and copies in other colours, are reported. Of another
            change: the images as they are.
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
    tested, alike = _controls_of(change, controls, seed)
    changes: dict[str, Change] = {"before": torch.clone, "change": change, **tested, **alike}
    if wrong := [name for name, each in changes.items() if not callable(each)]:
        raise InputError(f"{wrong[0]} isn't a function: give one from images to changed images")
    logits, seen, pictures, altered = dict[str, list[Tensor]](), list[Tensor](), dict[str, Tensor](), False
    with probing(model) as probe:
        batches = image_batches(images, labels, labelled=False)
        for batch, of_batch, _ in track(batches, "changing images", show=progress):
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
    table, detectable = _table(joined, list(tested), names, sampled=controls is None and len(tested) > 1)
    truth = torch.cat(seen).numpy() if sum(map(len, seen)) == count else None
    predictions = {name: values.argmax(axis=1) for name, values in joined.items()}
    shares = {} if truth is None else {name: float((each == truth).mean()) for name, each in predictions.items()}
    rows, first = [], table[0]["class_index"]
    for name in (*tested, *alike):
        mean = (_centred(joined[name]) - _centred(joined["before"])).mean(axis=0)
        most, rank = int(mean.argmax()), 1 + int((mean > mean[first]).sum())
        row = {"name": name, "change": float(mean[first]), "rank": rank, "accuracy": shares.get(name)}
        rows.append(row | {"raised": names[most], "most": float(mean[most])})
    turned = float((predictions["change"] != predictions["before"]).mean())
    subject = "The mark" if isinstance(change, Mark) else "The change"
    if alike and len(tested) == 1:
        subject = _PLAIN
    accuracy = (shares["before"], shares["change"]) if shares else None
    return Suspicion(subject, tuple(table), tuple(rows), accuracy, turned, count, detectable, pictures)


def _controls_of(change: Change, controls: Any, seed: int) -> tuple[dict[str, Change], dict[str, Change]]:
    """Controls to test against by name, and copies of a mark that are only reported."""
    if controls is None:
        shuffled, alike = change.copies(seed) if isinstance(change, Mark) else ({}, {})
        return shuffled or {"as they are": torch.clone}, alike
    if callable(controls):
        controls = [controls]
    if not controls:
        raise InputError("controls are empty: give at least one change, or None")
    named = controls if isinstance(controls, Mapping) else {f"control {n}": each for n, each in enumerate(controls, 1)}
    return dict(named), {}


def _table(
    logits: Mapping[str, Columns], tested: Sequence[str], names: Sequence[str], *, sampled: bool
) -> tuple[list[dict[str, Any]], float]:
    """A row per class, the most raised first, and the rise that is found in half of the cases.

    A p value is the larger of two: over the images, and over the controls if they are `sampled` from many.
    """
    from scipy.special import softmax, stdtr

    count, classes = logits["before"].shape
    moved = {name: _centred(logits[name]) - _centred(logits["before"]) for name in ("change", *tested)}
    means = np.stack([moved[name].mean(axis=0) for name in tested])
    strongest = np.stack([moved[name] for name in tested])[means.argmax(axis=0), :, np.arange(classes)].T
    # To leave the images as they are is a control as well: a class that shuffled copies lower isn't raised by that.
    beyond = moved["change"] - np.where(means.max(axis=0) > 0, strongest, 0)
    error, own_error = (values.std(axis=0, ddof=1) / count**0.5 for values in (beyond, moved["change"]))
    excess, change = beyond.mean(axis=0), moved["change"].mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ps = stdtr(count - 1, -excess / error)
        if sampled:
            spread = means.std(axis=0, ddof=1) * (1 + 1 / len(means)) ** 0.5
            ps = np.maximum(ps, stdtr(len(means) - 1, (means.mean(axis=0) - change) / spread))
    corrected = holm(np.nan_to_num(ps, nan=1.0).tolist())
    ends = np.stack([change, change]) + quantile(0.025, count - 1) * np.stack([-own_error, own_error])
    rise = (softmax(logits["change"], axis=1) - softmax(logits["before"], axis=1)).mean(axis=0)
    significant = np.array(corrected) < THRESHOLDS.level
    order = np.lexsort((-np.where(significant, excess, change), ~significant)).tolist()
    means_of = {"change": change, "control": means.max(axis=0), "excess": excess, "probability": rise}
    table = [
        {"class_index": index, "class": names[index], "p": corrected[index]}
        | {name: float(values[index]) for name, values in means_of.items()}
        | {"interval": ends[:, index].tolist()}
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
