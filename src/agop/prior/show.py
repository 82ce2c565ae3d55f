"""Show an AGOP: in words, how concentrated diag(M) is, as pictures, and as HTML for notebooks."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageOps

if TYPE_CHECKING:
    from torch import Tensor

    from agop.prior.agop import AGOP

# One pixel in 64 counts as hottest: 16 of 32×32, 784 of 224×224.
_ONE_IN = 64
# Maps of fewer samples are concentrated by chance: measured on a small network, 20 samples give 1.1 times the share
# of all, 5 give 1.4 times. 100 samples give each pixel to about a tenth.
_ENOUGH_IN_CLASS, _ENOUGH = 20, 100
_PLACES = (
    ("top left", "top", "top right"),
    ("left", "centre", "right"),
    ("bottom left", "bottom", "bottom right"),
)
# Class names in a list, and pictures in one overview: all samples, and the most concentrated classes.
_LISTED_NAMES, _MOST = 10, 24
# Ends and middle of matplotlib's inferno.
_BLACK, _MIDDLE, _WHITE = "#000004", "#bb3754", "#fcffa4"
_ROW = '<tr><th style="text-align:left">{name}</th><td style="text-align:left">{text}</td></tr>'
_FIGURE = (
    '<figure style="margin:0;width:150px"><figcaption>{caption}</figcaption>'
    '<img alt="{caption}" style="width:150px;image-rendering:pixelated" src="data:image/png;base64,{png}"></figure>'
)


def facts(prior: AGOP) -> dict[str, str]:
    """Facts about an AGOP by name, without those that it doesn't record."""
    provenance, names = prior.provenance, prior.provenance.data.classes
    more = f" … ({len(names):,})" if len(names) > _LISTED_NAMES else ""
    patches = None if prior.patch_matrix is None else len(prior.patch_matrix)
    lines = {
        "statistic": _statistic(prior),
        "patches": "" if patches is None else f"patch matrix of {patches} channels, layer {prior.layer}",
        "sketch": sketch_text(prior),
        "factors": _tuned_text(prior),
        "samples": _samples(prior),
        "model": ", ".join(f"{part} {digest[:8]}" for part, digest in provenance.model.items()),
        "images": preprocessing_text(provenance.data.preprocessing) or "preprocessing not recorded",
        "classes": ", ".join(names[:_LISTED_NAMES]) + more,
        "merged from": ", ".join(part.name for part in provenance.merged),
        "made with": ", ".join(f"{package} {version}" for package, version in provenance.versions.items()),
    }
    return {name: text for name, text in lines.items() if text}


def _statistic(prior: AGOP) -> str:
    shape = "×".join(map(str, prior.diagonal.shape))
    classes = "" if prior.class_diagonals is None else f", also by class ({len(prior.class_diagonals):,} classes)"
    how = f", {prior.provenance.kind}" if prior.provenance.kind else ""
    how = how.replace("training-accumulated", "collected during training")
    steps = "" if prior.provenance.steps is None else f" ({prior.provenance.steps:,} steps)"
    output = "" if prior.provenance.output == "logit" else f", gradients of {prior.provenance.output}"
    return f"diag(M) of {shape} input values{classes}{how}{steps}{output}"


def _tuned_text(prior: AGOP) -> str:
    """The exponent of V that was chosen, and the SRG of each."""
    tuned = prior.provenance.tuned
    scores = ", ".join(f"V^{exponent} {value:.3f}" for exponent, value in tuned.get("srg", {}).items())
    return f"agop has where = V^{tuned['where']}, by SRG on training images: {scores}" if scores else ""


def _samples(prior: AGOP) -> str:
    provenance = prior.provenance
    correct = ", the correctly classified ones" if provenance.options.get("only_correct") else ""
    skipped = f"; {provenance.skipped:,} skipped: NaN or infinite gradients" if provenance.skipped else ""
    accuracy = ""
    if provenance.accuracy is not None:
        accuracy = f"; accuracy {100 * provenance.accuracy:.1f} % of {provenance.labelled:,}"
    return f"{prior.count:,} counted{correct}{skipped}{accuracy}"


def sketch_text(prior: AGOP) -> str:
    """The sketch in words: its rank, and the share of tr(M) that it lacks. Empty if there is none."""
    if prior.sketch is None:
        return ""
    missing = prior.residual_share
    return f"{len(prior.sketch)} rows with {100 * (1 - missing):.1f} % of tr(M); tr(r)/tr(M) = {missing:.3g}"


def preprocessing_text(fields: Mapping[str, Any]) -> str:
    """Preprocessing in words, from the fields of a `Preprocessing`: "32×32 RGB, mean 0.5, std 0.25"."""
    parts = []
    size, resize = fields.get("size"), fields.get("resize")
    if size:
        sides = "×".join(map(str, resize)) if isinstance(resize, (list, tuple)) else str(resize)
        scaled = f" cut from {sides}" if resize and resize != size else ""
        parts.append(f"{'×'.join(map(str, size))} {'gray' if fields.get('gray') else 'RGB'}{scaled}")
    for name in ("mean", "std"):
        if name in fields:
            parts.append(f"{name} {','.join(f'{value:g}' for value in fields[name])}")
    return ", ".join(parts)


@dataclass(frozen=True)
class Concentration:
    """Share of a map's sum in its hottest pixels, the numbers of these and of all pixels, and the place.

    The share is NaN for a map of zeros.
    """

    share: float
    pixels: int
    total: int
    place: str

    def __str__(self) -> str:
        where = self.place if self.place == "scattered" else f"at the {self.place}"
        return f"{self.percent} % of diag(M) in {self.pixels:,} of {self.total:,} pixels, {where}"

    @property
    def percent(self) -> str:
        """The share in percent, without the sign: "37", "5.2"."""
        return f"{100 * self.share:.0f}" if self.share >= 0.0995 else f"{100 * self.share:.1f}"


def concentration(saliency: Tensor) -> Concentration:
    """Concentration of a non-negative map (H,W): its share in the hottest 64th of the pixels.

    Their place is the third of the height and of the width with their weighted median, or "scattered" if less than half
    of their sum is within a quarter of the height and width of it.
    """
    height, width = saliency.shape
    total, pixels = saliency.numel(), math.ceil(saliency.numel() / _ONE_IN)
    values = saliency.double().flatten()
    if not values.max() > 0:
        return Concentration(math.nan, pixels, total, "all zero")
    # Of equal values, the first ones: topk alone takes any.
    candidates = (values >= values.topk(pixels).values[-1]).nonzero()[:, 0]
    hottest = candidates[values[candidates].sort(descending=True, stable=True).indices[:pixels]]
    heat, rows, columns = values[hottest], hottest // width, hottest % width
    row, column = _median(rows, heat), _median(columns, heat)
    near = ((rows - row).abs() <= height / 4) & ((columns - column).abs() <= width / 4)
    scattered = heat[near].sum() < heat.sum() / 2
    place = place_in_words((row + 0.5) / height, (column + 0.5) / width)
    share = float(heat.sum() / values.sum())
    return Concentration(share, pixels, total, "scattered" if scattered else place)


def place_in_words(down: float, right: float) -> str:
    """A place in an image, by how far down and right it is, from 0 to below 1: "top left", "bottom", "centre"."""
    return _PLACES[int(3 * down)][int(3 * right)]


def _median(places: Tensor, weights: Tensor) -> int:
    """Weighted median of integer places (K,)."""
    ordered, order = places.sort(stable=True)
    return int(ordered[int((weights[order].cumsum(0) < weights.sum() / 2).sum())])


@dataclass(frozen=True)
class Part:
    """A part of the samples, all of them or one class: its label, number of samples, map (H,W) and concentration."""

    label: str
    samples: int
    saliency: Tensor
    hot: Concentration

    @classmethod
    def of(cls, label: str, samples: int, diagonal: Tensor) -> Part:
        """The part with this diag(M) (C,H,W); that of volumes is summed over their depth."""
        saliency = diagonal.flatten(0, -3).sum(dim=0)
        return cls(label, samples, saliency, concentration(saliency))


@dataclass(frozen=True)
class Overview:
    """Concentration of all samples, and of the classes that have samples.

    The most concentrated class is first; those with few samples are last.
    """

    whole: Part
    classes: tuple[Part, ...]

    @classmethod
    def of(cls, prior: AGOP) -> Overview:
        """Overview of a prior; without classes if the prior has none."""
        whole = Part.of("all samples", prior.count, prior.diagonal)
        if prior.class_diagonals is None or prior.class_counts is None:
            return cls(whole, ())
        parts = [
            Part.of(_class_label(prior, index), count, prior.class_diagonals[index])
            for index, count in enumerate(prior.class_counts.tolist())
            if count
        ]
        # NaN, the share of a map of zeros, has no order.
        parts.sort(key=lambda part: (part.samples < _ENOUGH_IN_CLASS, -part.hot.share if part.hot.share > 0 else 0.0))
        return cls(whole, tuple(parts))

    @property
    def line(self) -> str:
        """The most concentrated class beside the others; all samples if fewer than two classes have enough samples."""
        classes = [part for part in self.classes if part.samples >= _ENOUGH_IN_CLASS and part.hot.share > 0]
        first, *others = classes if len(classes) > 1 else [self.whole]
        if math.isnan(first.hot.share):
            return "diag(M) is zero: the model's logits don't depend on its input"
        if not others:
            return f"{first.label}: {first.hot}"
        ends = dict.fromkeys((others[-1].hot.percent, others[0].hot.percent))
        return f"{first.label}: {first.hot}; other class{'es' if len(others) > 1 else ''} {'–'.join(ends)} %"


def few_samples(prior: AGOP) -> str:
    """A warning if the prior, or a class of it, has few samples, else ""."""
    if prior.count < _ENOUGH:
        return f"{prior.count:,} samples were counted, which is few: use {_ENOUGH} or more"
    counts = [] if prior.class_counts is None else prior.class_counts.tolist()
    least = 0 if prior.provenance.labelled else 1  # without labels, nothing says that a class should occur
    few = [_class_label(prior, index) for index, count in enumerate(counts) if least <= count < _ENOUGH_IN_CLASS]
    if not few:
        return ""
    names = ", ".join(few[:5]) + (", …" if len(few) > 5 else "")
    number = f"{len(few)} of {len(counts)} classes have fewer than {_ENOUGH_IN_CLASS} samples"
    return f"{number} ({names}): their maps are noisy"


def _class_label(prior: AGOP, index: int) -> str:
    return f"class {prior.class_names[index] if prior.class_names else index}"


def panels(overview: Overview) -> list[tuple[str, Image.Image]]:
    """Caption and picture of all samples and of the most concentrated classes, at most 24."""
    shown = []
    for part in (overview.whole, *overview.classes)[:_MOST]:
        share = f"{part.hot.percent} % in {part.hot.pixels:,} px" if part.hot.share > 0 else "all zero"
        shown.append((f"{share}: {part.label}", picture(part.saliency)))
    return shown


def picture(saliency: Tensor) -> Image.Image:
    """Picture of a map (H,W). The brightest colour is its maximum, the scale a square root: the RMS gradient."""
    strength = saliency.double().sqrt()
    gray = (255 * strength / strength.max().clamp(min=1e-300)).round().byte()
    return ImageOps.colorize(Image.fromarray(gray.numpy()), _BLACK, _WHITE, _MIDDLE)


def png(image: Image.Image) -> bytes:
    """The bytes of a PNG file."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def html_of(prior: AGOP) -> str:
    """HTML of an AGOP: what it holds, its concentration, and its maps."""
    overview = Overview.of(prior)
    rows = "".join(_ROW.format(name=html.escape(name), text=html.escape(text)) for name, text in facts(prior).items())
    figures = "".join(
        _FIGURE.format(caption=html.escape(caption), png=base64.b64encode(png(image)).decode())
        for caption, image in panels(overview)
    )
    return (
        f"<div><b>{html.escape(repr(prior))}</b><table>{rows}</table><p>{html.escape(overview.line)}</p>"
        f'<div style="display:flex;flex-wrap:wrap;gap:8px">{figures}</div></div>'
    )
