"""Subgroups: what is known of images beside their class, such as the camera, and whether a model decides by it."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from agop.auditing.candidates import (
    BORDER,
    COLOUR,
    HIGH_FREQUENCY,
    REGION,
    Candidate,
    SwapCandidate,
    border_of,
    windows,
)
from agop.auditing.data import AuditedModel, ImageSample, Predictions, Stage, class_label, generator_for
from agop.auditing.findings import percent, subject_in_words
from agop.auditing.groups import Groups, Rule
from agop.auditing.interventions import Colour, HighFrequency, Transplant
from agop.auditing.tests import Screening, Trial, trial_on
from agop.auditing.thresholds import CONTRAST_PAIRS, SMALLEST_GROUP, TEST_PAIRS, THRESHOLDS
from agop.errors import FileError, InputError
from agop.io import read_bytes
from agop.stats import Mean, finite, holm

Names = Mapping[str, str]
# Periods in pixels below which details are swapped.
_PERIODS = (4, 8, 16)


@dataclass(frozen=True, eq=False)
class Subgroup:
    """A known group of images that goes with a class, by which the model decides.

    `shares` are those of the class's images and of other images that are of the group. `taken` (2,2) are the shares of
    images that the model takes for the class: of the class and of other classes, of the group and not. `change` is the
    smaller one of the differences of the mean P(class), of the class or of others. `carrier` is the test of what in the
    images carries it.
    """

    name: str
    class_index: int
    shares: tuple[float, float]
    taken: tuple[tuple[float, float], tuple[float, float]]
    change: Mean
    p: float
    sentence: str
    carrier: Trial | None = None

    def to_dict(self) -> dict[str, Any]:
        """The subgroup as JSON values."""
        names = ("name", "class_index", "shares", "taken", "p", "sentence")
        interval = [finite(end) for end in self.change.interval]
        return {name: getattr(self, name) for name in names} | {"change": self.change.value, "interval": interval}


def read_groups(path: Path, folder: Path) -> Names:
    """The groups of the images of a folder, from a CSV of lines path,group with paths below the folder."""
    try:
        rows = [row for row in csv.reader(read_bytes(path).decode().splitlines()) if row]
    except UnicodeDecodeError as error:
        raise FileError(f"{path} isn't text in UTF-8: {error}") from error
    if wrong := [row for row in rows if len(row) != 2 or not row[1].strip()]:
        raise InputError(f"{path} has the line {','.join(wrong[0])}: give lines path,group")
    names = {str(folder / image): name for image, name in rows}
    if twice := [image for image, name in rows if names[str(folder / image)] != name]:
        raise InputError(f"{path} has two groups of {twice[0]}: give one")
    return names


def names_of(groups: Names | Sequence[Any], sample: ImageSample) -> Names:
    """The group of each image of a sample, from a mapping of paths, or from a sequence in the order of the images.

    Raise InputError if the group of an image is missing.
    """
    if not isinstance(groups, Mapping) and len(groups) != (count := sum(sample.seen)):
        raise InputError(f"there are {len(groups)} groups and {count} images: give the group of each image")
    names = groups if isinstance(groups, Mapping) else {str(place): name for place, name in enumerate(groups)}
    if missing := [picture for picture in sample.pictures if picture not in names]:
        raise InputError(
            f"image {missing[0]} and {len(missing) - 1} more have no group: give the group of each image, in a CSV by "
            "its path below the folder of the images"
        )
    known = {picture: str(names[picture]) for picture in sample.pictures}
    if len(values := set(known.values())) == 1:
        raise InputError(f"all images are of group {values.pop()}: give two groups or more")
    return known


def subgroups(audited: AuditedModel, groups: Names, class_names: Sequence[str], seed: int) -> tuple[Subgroup, ...]:
    """The groups that are more frequent in a class than in others, and raise P(class) in both, most certain first."""
    found, tests = list[Subgroup](), list(_tests(audited, groups))
    corrected = holm([test[-1] for test in tests])
    for place in sorted(range(len(tests)), key=corrected.__getitem__):
        (index, name, shares, taken, change, _), p = tests[place], corrected[place]
        # Of two groups, one has what the other lacks: another class has more of the other one.
        said = len(set(groups.values())) == 2 and any(each.name != name and each.class_index != index for each in found)
        if p < THRESHOLDS.level and not said:
            carrier = _carrier(audited, groups, index, name, seed)
            text = _sentence(class_names[index], name, shares, taken, carrier)
            found.append(Subgroup(name, index, shares, taken, change, p, text, carrier))
    return tuple(found)


def _tests(audited: AuditedModel, groups: Names) -> Iterator[tuple[int, str, Any, Any, Mean, float]]:
    """Class, group, shares, `taken`, change and p value, on the images of both halves: nothing chose them."""
    from scipy.stats import fisher_exact

    halves = (audited.first, audited.second)
    labels = torch.cat([half.split.labels for half in halves])
    before = torch.cat([half.before for half in halves])
    of = [groups[picture] for half in halves for picture in half.split.pictures]
    values, classes = sorted(set(of)), sorted(set(labels.tolist()))
    if len(values) == len(classes) == 2:  # the other class and the other group say the same
        classes = classes[1:]
    for index, value in product(classes, values):
        own, having = labels == index, torch.tensor([name == value for name in of])
        cells = [[side & having, side & ~having] for side in (own, ~own)]
        counts = [[int(cell.sum()) for cell in pair] for pair in cells]
        if min(map(min, counts)) < SMALLEST_GROUP:
            continue
        changes = []
        for pair in cells:
            first, second = (Mean.over_groups(before[cell, index], torch.arange(int(cell.sum()))) for cell in pair)
            changes.append(first.minus(second))
        taken = tuple(
            tuple(float((before[cell].argmax(dim=1) == index).double().mean()) for cell in pair) for pair in cells
        )
        shares = tuple(pair[0] / sum(pair) for pair in counts)
        more_often = float(fisher_exact(counts, alternative="greater").pvalue)
        p = max(more_often, *(change.p_above(THRESHOLDS.margin) for change in changes))
        yield index, value, shares, taken, min(changes, key=lambda change: change.value), p


def _carrier(audited: AuditedModel, groups: Names, index: int, name: str, seed: int) -> Trial | None:
    """What, pasted from the group's images of the class, raises P(class) most beyond the controls.

    The first half chooses among properties and windows, the second half tests. None if that isn't significant.
    """
    size = audited.first.split.size
    swaps = [(COLOUR, Colour()), *((HIGH_FREQUENCY, HighFrequency(1 / period)) for period in _PERIODS)]
    swaps += [(REGION, Transplant(box.region(size))) for box in windows(size)[0]]
    if border := border_of(size):
        swaps.append((BORDER, border))
    if any(len(set(_contains(half, groups, index, name).tolist())) < 2 for half in (audited.first, audited.second)):
        return None
    trials = (
        _trial(audited.first, groups, SwapCandidate(kind, index, "group", swap), name, CONTRAST_PAIRS, seed)
        for kind, swap in swaps
    )
    best = max(trials, key=lambda trial: trial.excess.value).candidate
    trial = _trial(audited.second, groups, best, name, TEST_PAIRS, seed)
    return trial if trial.p < THRESHOLDS.level else None


def _contains(predictions: Predictions, groups: Names, index: int, name: str) -> Tensor:
    """Which images (M,) of a class are of the group."""
    pictures = predictions.split.pictures
    return torch.tensor([groups[pictures[place]] == name for place in predictions.members(index)])


def _trial(predictions: Predictions, groups: Names, candidate: Candidate, name: str, count: int, seed: int) -> Trial:
    index = candidate.class_index
    members, contains = predictions.members(index), _contains(predictions, groups, index, name)
    known = Groups(contains, torch.inf, 0.0, 0.0, torch.inf)
    nothing = torch.zeros(len(members), dtype=torch.float64)
    screening = Screening(candidate, predictions, members, nothing, Rule(None, True), contains, known, members[:0])
    generator = generator_for(seed, index, Stage.GROUPS)
    pairs = predictions.pairs(index, members[contains], count, generator)
    return trial_on(pairs, screening, screening, 0.0, generator)


def _sentence(
    class_name: str, name: str, shares: Sequence[float], taken: Sequence[Sequence[float]], carrier: Trial | None
) -> str:
    own, others = shares
    text = (
        f"Group {name} decides {class_label(class_name)}: {percent(own)} of the {class_name} images are of it, and "
        f"{percent(others)} of the others. Of the {class_name} images, {percent(taken[0][0])} are recognised with it, "
        f"{percent(taken[0][1])} without it; of the others, {percent(taken[1][0])} are taken for {class_name} with it, "
        f"{percent(taken[1][1])} without it. "
    )
    if carrier is None:
        return f"{text}No region and no property of the image carries it alone."
    return (
        f"{text}{_subject(carrier.candidate)} carries it: given to {len(carrier.changes):,} other images, the "
        f"probability of {class_name} changes by {carrier.effect.value:+.2f} from {class_name} images of the group "
        f"(from {carrier.control_images}: {carrier.control:+.2f})."
    ).replace("-0", "−0")


def _subject(candidate: Any) -> str:
    swap = candidate.swap
    if isinstance(swap, HighFrequency):
        return f"Detail finer than {1 / swap.lowest:.0f} pixels"
    return subject_in_words(candidate)
