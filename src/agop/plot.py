"""Figures for papers and notebooks. Needs matplotlib: pip install 'agop[plot]'."""

import io
import os
import re
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes  # without matplotlib, `agop.plot` raises MissingExtraError
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.patheffects import Normal, Stroke
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from agop import metrics
from agop.errors import FileError, InputError, LayerError, PriorError
from agop.images.overlays import DIVERGING, Colouring, Picture, heat, pixels, signed_picture, top_value
from agop.images.overlays import overlay as map_over_image
from agop.model.layers import convolution_weight, named_layer
from agop.model.probe import check_model
from agop.model.state import unwrapped
from agop.prior.agop import AGOP
from agop.prior.matrices import patch_eigenvectors
from agop.report.folder import RunSpec, curves, read
from agop.report.pictures import outline_segments

__all__ = ["compare", "convergence", "filters", "overlay", "show"]

_Map = NDArray[np.float64]
_Mask = NDArray[np.bool_]
# Okabe and Ito's colour-blind-safe palette; each colour has its own dash pattern, for print in grey.
_LINES: tuple[dict[str, Any], ...] = (
    {"color": "#000000", "linestyle": ":"},
    {"color": "#0072B2", "linestyle": "-"},
    {"color": "#D55E00", "linestyle": "--"},
    {"color": "#009E73", "linestyle": "-."},
)
_OUTLINE = "#56B4E9"  # the colour of the palette that is farthest from the maps' colours
_SIDE, _WIDE = 1.25, 3.0  # width of a small and of a single panel, in inches
_FEW, _MOST = 6, 100
_SNAPSHOT = re.compile(r"step-(\d+)(-rank\d+)?\.safetensors")


def show(
    images: Any,
    maps: Any,
    *,
    targets: Sequence[Any] | Tensor | None = None,
    title: str = "map",
    scale: str = "own",
    percentile: float = 98.0,
    opacity: float = 1.0,
    colours: str = "inferno",
) -> Figure:
    """Figure of the first six images (N,C,H,W) in a row, their maps (N,H,W) below.

    Args:
        images: tensor (N,C,H,W), array (N,H,W,3), or a list of PIL images.
        maps: one map (H,W) per image, not negative unless the colours are "RdBu_r".
        targets: the explained classes (N,), as numbers or names, for the captions.
        title: label of the maps' row.
        scale: as in `compare`.
        percentile: as in `compare`.
        opacity: as in `compare`.
        colours: as in `compare`.

    Returns:
        A matplotlib figure, which a notebook displays.

    Raises:
        InputError: if there are no images, or maps or targets don't fit them.

    Example:
        maps = agop.explain(model, images, "agop", prior=prior)
        agop.plot.show(images, maps).savefig("maps.pdf")
    """
    colouring = Colouring(scale, percentile, opacity, colours)
    if len(images) == 0:
        raise InputError("0 images: pass at least one")
    _check_lengths(len(images), maps=maps, targets=targets)
    pictures = [_picture(image) for image in images[:_FEW]]
    few = [_map(saliency, picture, colours) for saliency, picture in zip(maps, pictures, strict=False)]
    classes = targets.tolist() if isinstance(targets, Tensor) else targets
    names = [f", {name if isinstance(name, str) else f'class {name}'}" for name in classes or ()]
    captions = [f"{place + 1} of {len(images)}{names[place] if names else ''}" for place in range(len(few))]
    return _grid(pictures, [None] * len(few), {title: few}, captions, colouring, below=True)


def compare(
    images: Any,
    maps: Mapping[str, Any],
    *,
    masks: Any = None,
    titles: Sequence[str] | None = None,
    scale: str = "own",
    percentile: float = 98.0,
    opacity: float = 1.0,
    colours: str = "inferno",
) -> Figure:
    """Figure with a row per image (N,C,H,W) and a column per method's maps (N,H,W), with mask outlines (N,H,W).

    Args:
        images: tensor (N,C,H,W), array (N,H,W,3), or a list of PIL images, at most 100.
        maps: maps (N,H,W) by method.
        masks: one mask (H,W) per image.
        titles: labels of the rows.
        scale: "own": each map has its own scale. "common": a colour is a pixel's share of its map's sum, on a
            square-root scale up to the largest share in the figure.
        percentile: the pixels above the brightest colour hold at most 100 − percentile percent of the map's sum.
        opacity: below 1, maps are drawn over their images.
        colours: "inferno", "viridis", "jet", "gray", or for maps with signs "RdBu_r".

    Returns:
        A matplotlib figure, which a notebook displays.

    Raises:
        InputError: if there are no images, or maps, masks or titles don't fit them.

    Example:
        maps = {name: agop.explain(model, images, name) for name in ("vanilla", "gradcam")}
        agop.plot.compare(images, maps, masks=masks)
    """
    colouring = Colouring(scale, percentile, opacity, colours)
    count = len(images)
    if not 0 < count <= _MOST:
        raise InputError(f"{count} images: pass 1 to {_MOST}, for example images[:6]")
    if not isinstance(maps, Mapping) or not maps:
        problem = "empty" if isinstance(maps, Mapping) else f"a {type(maps).__name__}"
        raise InputError(f"maps is {problem}: pass a dict {{'vanilla': maps, …}} of maps (N,H,W)")
    _check_lengths(count, masks=masks, titles=titles)
    pictures = [_picture(image) for image in images]
    columns = {}
    for name, values in maps.items():
        if len(values) != count:
            expected = ",".join(map(str, (count, *pictures[0].shape[:2])))
            raise InputError(f"{name} has shape {tuple(np.shape(values))}: pass maps ({expected}), one per image")
        columns[name] = [_map(one, picture, colours, name) for one, picture in zip(values, pictures, strict=True)]
    given = [None] * count if masks is None else masks
    insides = [_mask(mask, picture) for mask, picture in zip(given, pictures, strict=True)]
    return _grid(pictures, insides, columns, titles or [""] * count, colouring, below=False)


def overlay(
    image: Any,
    map: Any,
    *,
    title: str | None = None,
    mask: Any = None,
    ax: Axes | None = None,
    scale: str = "own",
    percentile: float = 98.0,
    opacity: float = 1.0,
    colours: str = "inferno",
) -> Figure:
    """Figure of the dimmed image (C,H,W) under the colours of its map (H,W), with the outline of its mask (H,W).

    Args:
        image: tensor (C,H,W), array (H,W,3), or a PIL image.
        map: the map (H,W), not negative unless the colours are "RdBu_r".
        title: text above the image.
        mask: its outline is drawn.
        ax: axes to draw into; by default, a new figure.
        scale: as in `compare`.
        percentile: as in `compare`.
        opacity: that of the brightest colour.
        colours: as in `compare`.

    Returns:
        The matplotlib figure of the axes.

    Raises:
        InputError: if the map or mask doesn't fit the image.

    Example:
        maps = agop.explain(model, images, "vanilla")
        agop.plot.overlay(images[0], maps[0], mask=masks[0])
    """
    colouring = Colouring(scale, percentile, opacity, colours)
    picture = _picture(image)
    saliency, inside = _map(map, picture, colours), _mask(mask, picture)
    if ax is None:
        tall = _WIDE * min(max(picture.shape[0] / picture.shape[1], 0.5), 2.0)
        ax = _Figure(figsize=(_WIDE + 0.9, tall + 0.4), layout="constrained").subplots()
    strengths, top = colouring.strengths({"map": saliency})
    _draw(ax, map_over_image(picture, strengths["map"], opacity, colours), inside, _problem(saliency))
    if title is not None:
        ax.set_title(title, parse_math=False, wrap=True)
    if scale == "own" and top > 0:
        size = np.abs(saliency)
        highest = top_value(size, percentile)
        lowest = -highest if colours == DIVERGING else 0
        _colour_bar([ax], Normalize(lowest, highest), "map value", colours, clipped=bool(size.max() > highest))
    else:
        _scale_bar([ax], colouring, top)
    parent: Any = ax.figure
    while not isinstance(parent, Figure):  # axes may be in subfigures
        parent = parent.figure
    return parent


def filters(prior: AGOP, model: nn.Module, *, count: int = 8) -> Figure:
    """Figure of the top eigenvectors of WᵀSW (C,kh,kw): the patterns in patches that the model relies on most.

    W are the weights of the prior's layer, a convolution, and S is its patch matrix. Above each filter is its share of
    the trace. Gray is 0; the sign is arbitrary.

    Args:
        prior: an AGOP with a patch matrix.
        model: the model of the prior.
        count: number of filters, at most.

    Returns:
        A matplotlib figure, which a notebook displays.

    Raises:
        PriorError: if the prior has no patch matrix or is of another model.
        LayerError: if the prior's layer isn't a Conv2d.

    Example:
        prior = agop.fit(model, loader)
        agop.plot.filters(prior, model)
    """
    check_model(model)
    if prior.patch_matrix is None or prior.layer is None:
        raise PriorError("the prior has no patch matrix: make one with agop.fit(model, loader) or `agop fit`")
    _, layer = named_layer(unwrapped(model), prior.layer)
    if not isinstance(layer, nn.Conv2d):
        raise LayerError(
            f"layer {prior.layer!r} is a {type(layer).__name__}, whose weights aren't filters: fit a prior at a Conv2d"
        )
    if layer.out_channels != len(prior.patch_matrix):
        raise PriorError(
            f"the patch matrix is of {len(prior.patch_matrix)} channels, layer {prior.layer!r} of this model has "
            f"{layer.out_channels}: compute a prior for this model with agop.fit"
        )
    if count < 1:
        raise InputError(f"count is {count}: give a positive integer")
    eigenvectors = patch_eigenvectors(prior.patch_matrix.numpy(), convolution_weight(layer).numpy(), count)
    number, _, height, width = eigenvectors.vectors.shape
    if number == 0:
        raise PriorError("all gradients are zero: the model's logits don't depend on its input")
    figure = _Figure(figsize=(_SIDE * number, _SIDE * height / width + 0.35), layout="constrained")
    panels = zip(eigenvectors.vectors, eigenvectors.percents, strict=True)
    for axes, (vector, percent) in zip(figure.subplots(1, number, squeeze=False)[0], panels, strict=True):
        _draw(axes, signed_picture(vector))
        axes.set_title(percent, fontsize="small")
    return figure


def convergence(run: str | os.PathLike[str], *, metric: str = "iou") -> Figure:
    """Figure of a metric and the accuracy against the training step, or of diag(M) in a hook's snapshots.

    A run has one panel per scenario and background. Lines are means over seeds, bands the range over seeds.
    Snapshots show diag(M) at a few steps, and its cosine similarity to the last one.

    Args:
        run: a run folder of `agop bench`, or a snapshot_dir of AGOPTrainingHook.
        metric: a metric that the run measured during training.

    Returns:
        A matplotlib figure, which a notebook displays.

    Raises:
        FileError: if the folder has neither, or snapshots of several trainings.
        InputError: if the metric wasn't measured.

    Example:
        hook = agop.AGOPTrainingHook(model, snapshot_every=100, snapshot_dir="snapshots")
        agop.plot.convergence("snapshots")  # after the training
    """
    folder = Path(run)
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "doesn't exist"
        raise FileError(
            f"{folder} {problem}: pass a run folder or a hook's snapshot_dir (created after snapshot_every steps)"
        )
    if (folder / "spec.json").exists():
        return _curves_of_run(folder, metric)
    snapshots: dict[int, list[AGOP]] = defaultdict(list)
    for path in sorted(folder.glob("step-*.safetensors")):
        if name := _SNAPSHOT.fullmatch(path.name):
            snapshots[int(name[1])].append(AGOP.load(path))
    if not snapshots:
        raise FileError(f"{folder} has neither a run nor snapshots: pass a folder with spec.json or step-….safetensors")
    _check_one_training(folder, snapshots)
    return _growth(snapshots)


class _Figure(Figure):
    """Figure that displays itself as the last expression of a notebook cell, even if pyplot was never imported."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def _picture(image: Any) -> Picture:
    """Picture (H,W,3) of a tensor (C,H,W), an array (H,W) or (H,W,C), or a PIL image.

    Bytes and values in 0..1 keep their scale. Other values are scaled: the minimum is black, the maximum white.
    """
    if isinstance(image, Tensor):
        channels, shape = image.detach().cpu(), "(C,H,W)"
    else:
        array, shape = np.array(image.convert("RGB") if isinstance(image, Image.Image) else image), "(H,W,3)"
        if array.dtype.kind not in "buif":
            kind = type(image).__name__
            raise InputError(f"image is a {kind}: pass a tensor (C,H,W), an array (H,W,3) or a PIL image")
        array = array[..., None] if array.ndim == 2 else array
        if array.ndim == 3 and array.shape[2] not in (1, 3, 4):
            raise InputError(f"image has shape {array.shape}: pass an array (H,W,3) or a tensor (C,H,W)")
        array = array if array.dtype in (np.uint8, np.bool_) else array.astype(np.float64)
        channels = torch.from_numpy(array).movedim(-1, 0)[:3]  # without alpha
    if channels.ndim != 3 or channels.numel() == 0:
        hint = ", for example image[0]" if channels.ndim == 4 and len(channels) == 1 else ""
        raise InputError(f"image has shape {tuple(channels.shape)}: pass one image {shape}{hint}")
    is_share = bool(((channels >= 0) & (channels <= 1)).all())
    extremes = ([0.0], [255.0]) if channels.dtype == torch.uint8 else ([0.0], [1.0]) if is_share else ()
    return np.asarray(pixels(channels[None], *extremes)[0])


def _map(values: Any, picture: Picture, colours: str, name: str = "map") -> _Map:
    """Map (H,W) as float64; raises unless it has the picture's size and is non-negative, or the colours have signs."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().double()
    try:
        saliency = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} is a {type(values).__name__}: pass a tensor or an array (H,W)") from None
    if saliency.shape != picture.shape[:2]:
        kind = "mask" if name == "mask" else "map"
        raise InputError(f"{name} has shape {saliency.shape}, its image {picture.shape[:2]}: pass a {kind} (H,W)")
    if (saliency < 0).any() and colours != DIVERGING:
        lowest = np.nanmin(saliency)
        raise InputError(f"{name} has values down to {lowest:.3g}: pass absolute values, or colours={DIVERGING!r}")
    return saliency


def _mask(values: Any, picture: Picture) -> _Mask | None:
    return None if values is None else np.asarray(_map(values, picture, "", "mask") != 0)


def _check_lengths(count: int, **lists: Any) -> None:
    for name, values in lists.items():
        if values is not None and len(values) != count:
            raise InputError(f"{count} images and {len(values)} {name}: pass one per image")


def _problem(saliency: _Map) -> str | None:
    """Why a map can't be drawn, or None."""
    if not np.isfinite(saliency).all():
        return "not finite"
    return None if saliency.any() else "all zero"


def _wrapped(text: str, letters: float) -> str:
    """The text in lines whose width is `letters` letter heights; a letter is about 0.55 as wide as high."""
    return "\n".join(textwrap.wrap(text, max(4, int(letters / 0.55))))


def _grid(
    pictures: Sequence[Picture], masks: Sequence[_Mask | None], maps: Mapping[str, Sequence[_Map]],
    titles: Sequence[str], colouring: Colouring, *, below: bool,
) -> Figure:  # fmt: skip
    """Figure of titled pictures with the outlines of masks, their maps by name below or beside them, and a colour bar.

    Opaque maps are drawn alone, others over their pictures.
    """
    names, (height, width, _) = ["image", *maps], pictures[0].shape
    columns, rows = (titles, names) if below else (names, titles)
    letter, tall = FontProperties(size="small").get_size_in_points() / 72, _SIDE * height / width
    heads = [_wrapped(name, _SIDE / letter) for name in columns]
    sides = [_wrapped(name, tall / letter) for name in rows]
    lines = [max(text.count("\n") + bool(text) for text in texts) for texts in (sides, heads)]
    # Beside the panels: the rows' names, and the bar with its ticks and label. Its label is about 10 letters long.
    across = len(columns) * (_SIDE + 0.06) + letter * (1.25 * lines[0] + 8) + 0.3
    down = max(len(rows) * (tall + 0.06), 10 * letter) + letter * (1.25 * lines[1] + 1)
    figure = _Figure(figsize=(across, down), layout="compressed")
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03, wspace=0, hspace=0)  # type: ignore[union-attr, call-arg]
    panels = figure.subplots(len(rows), len(columns), squeeze=False)
    for axes, head in zip(panels[0], heads, strict=True):
        axes.set_title(head, fontsize="small", pad=4, parse_math=False)
    for axes, side in zip(panels[:, 0], sides, strict=True):
        axes.set_ylabel(side, fontsize="small", labelpad=2, parse_math=False)
    flat = {f"{place} {name}": saliency for name, own in maps.items() for place, saliency in enumerate(own)}
    strengths, top = colouring.strengths(flat)
    for place, axes_of_picture in enumerate(panels.T if below else panels):
        picture, mask = pictures[place], masks[place]
        _draw(axes_of_picture[0], picture, mask)
        for name, axes in zip(maps, axes_of_picture[1:], strict=True):
            key = f"{place} {name}"
            if colouring.opacity == 1:
                coloured = heat(strengths[key], 1.0, colouring.colours)
            else:
                coloured = map_over_image(picture, strengths[key], colouring.opacity, colouring.colours)
            _draw(axes, coloured, mask, _problem(flat[key]))
    _scale_bar(list(panels.flat), colouring, top)
    return figure


def _draw(axes: Axes, picture: Picture, mask: _Mask | None = None, note: str | None = None) -> None:
    """Draw a picture (H,W,3) without ticks, with the mask's outline; a note covers the picture."""
    axes.imshow(picture, interpolation="antialiased")
    axes.set_xticks([])
    axes.set_yticks([])
    if note is not None:
        height, width = picture.shape[:2]
        axes.add_patch(Rectangle((-0.5, -0.5), width, height, facecolor="0.85", edgecolor="0.6", hatch="///", lw=0))
        box = {"facecolor": "white", "edgecolor": "none", "pad": 2}
        axes.text(0.5, 0.5, note, transform=axes.transAxes, ha="center", va="center", fontsize="small", bbox=box)
    if mask is not None:
        # A pixel extends half a unit to each side of its centre.
        segments = [np.array(segment).reshape(2, 2) - 0.5 for segment in outline_segments(mask)]
        lines = LineCollection(segments, colors=_OUTLINE, linewidths=1.5, capstyle="projecting")
        lines.set_path_effects([Stroke(linewidth=2.5, foreground="black", capstyle="projecting"), Normal()])
        axes.add_collection(lines, autolim=False)


def _scale_bar(axes: list[Axes], colouring: Colouring, top: float) -> None:
    """Colour bar of a colouring: values relative to each map's top value, or shares up to `top` on a square-root scale.

    No bar if `top` is 0, when no map has colours.
    """
    clipped = colouring.percentile < 100
    if top > 0 and colouring.scale == "own":
        lowest = -1.0 if colouring.colours == DIVERGING else 0.0
        bar = _colour_bar(axes, Normalize(lowest, 1), "relative value", colouring.colours, clipped)
        bar.set_ticks([lowest, (lowest + 1) / 2, 1.0], labels=[f"{tick:g}" for tick in (lowest, (lowest + 1) / 2, 1)])
    elif top > 0:
        bar = _colour_bar(axes, PowerNorm(0.5, 0, top), "share of the map", colouring.colours, clipped)
        # Round numbers at about a third and two thirds of the bar.
        ticks = [0.0, *(float(f"{top * part**2:.1g}") for part in (1 / 3, 2 / 3)), top]
        bar.set_ticks(ticks, labels=[f"{100 * tick:.3g} %" for tick in ticks])
        bar.minorticks_off()


def _colour_bar(axes: list[Axes], scale: Normalize, label: str, colours: str, clipped: bool) -> Any:
    """Colour bar of the maps beside the axes; an arrow at its end if values are clipped."""
    listed = ListedColormap(heat(np.linspace(0, 1, 256)[None], 1.0, colours)[0] / 255, f"agop {colours}")
    end = "neither" if not clipped else "both" if colours == DIVERGING else "max"
    bar = axes[0].figure.colorbar(ScalarMappable(scale, listed), ax=axes, extend=end, shrink=0.9, aspect=20)
    bar.set_label(label, fontsize="small")
    bar.ax.tick_params(labelsize="small")
    return bar


def _growth(snapshots: dict[int, list[AGOP]]) -> Figure:
    """diag(M) over all ranks at a few steps on one scale, and its cosine similarity to the last one."""
    diagonals: dict[int, Tensor] = {}
    for step, parts in sorted(snapshots.items()):
        total = sum(part.count for part in parts)
        diagonals[step] = torch.stack([part.diagonal.double() * (part.count / total) for part in parts]).sum(dim=0)
    steps, last = list(diagonals), list(diagonals.values())[-1]
    few = [steps[int(place)] for place in np.unique(np.linspace(0, len(steps) - 1, _FEW).round())]
    tall = _SIDE * last.shape[1] / last.shape[2]
    figure = _Figure(figsize=(_SIDE * _FEW + 0.9, tall + 2.6), layout="constrained")
    parts_of_figure = figure.add_gridspec(2, len(few), height_ratios=(tall + 0.3, 2.2))
    panels = [figure.add_subplot(parts_of_figure[0, column]) for column in range(len(few))]
    maps = {f"step {step:,}": diagonals[step].sum(dim=0).numpy() for step in few}
    colouring = Colouring("common", percentile=100)  # the steps are compared with one another
    strengths, top = colouring.strengths(maps)
    for axes, (name, strength) in zip(panels, strengths.items(), strict=True):
        _draw(axes, heat(strength, 1.0, colouring.colours), note=_problem(maps[name]))
        axes.set_title(name, fontsize="small")
    _scale_bar(panels, colouring, top)
    axes = figure.add_subplot(parts_of_figure[1, :])
    cosines = [float((one * last).sum() / (one.norm() * last.norm())) for one in diagonals.values()]
    axes.plot(steps, cosines, **_LINES[1])
    axes.set_xlabel("training step")
    axes.set_ylabel("cosine of diag(M)\nwith the last step")
    axes.grid(alpha=0.3)
    return figure


def _check_one_training(folder: Path, snapshots: dict[int, list[AGOP]]) -> None:
    """Raise if the snapshots of a rank have several training ids."""
    steps_of: dict[Any, dict[str | None, list[int]]] = defaultdict(lambda: defaultdict(list))
    for step, parts in snapshots.items():
        for provenance in (part.provenance for part in parts):
            # Each rank has its own id. A training may be resumed with another number of ranks: rank 0 keeps its id.
            rank = (provenance.rank, provenance.ranks) if provenance.rank else 0
            steps_of[rank][provenance.training].append(step)
    for trainings in steps_of.values():
        if len(trainings) > 1:
            spans = "; ".join(f"steps {min(steps):,} to {max(steps):,}" for steps in trainings.values())
            raise FileError(
                f"{folder} has snapshots of {len(trainings)} trainings ({spans}): delete all but one's, and use one "
                "snapshot_dir per training"
            )


def _curves_of_run(folder: Path, metric: str) -> Figure:
    """One panel per scenario and background; a method has the same style in every panel."""
    label, spec, rows = metrics.get(metric).label, RunSpec.load(folder), read(folder, "convergence.jsonl")
    if not rows:
        raise FileError(f"{folder} has no convergence rows: its models were trained without snapshots")
    lines = {key: values for key, values in curves(rows).items() if key[3] in (metric, "accuracy")}
    methods = sorted({key[2] for key in lines}, key=lambda name: (name != "model", name))
    if methods in ([], ["model"]):
        measured = sorted({row["metric"] for row in rows} - {"accuracy"})
        raise InputError(f"{metric} wasn't measured during training: pass one of {', '.join(measured)}")
    styles = dict(zip(methods, cycle(_LINES), strict=False))
    size = (max(4.5, 2.4 * len(spec.scenarios) + 0.4), 2.0 * len(spec.backgrounds) + 0.9)
    figure = _Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(spec.backgrounds), len(spec.scenarios), squeeze=False, sharex=True, sharey=True)
    for background, row in zip(spec.backgrounds, grid, strict=True):
        for scenario, axes in zip(spec.scenarios, row, strict=True):
            axes.set_visible(spec.has(scenario, background))
            axes.set_title(f"{scenario}, {background}".replace("_", " "), fontsize="small")
            axes.set_ylim(0, 1)
            axes.tick_params(labelsize="small")
            axes.grid(alpha=0.3)
        row[0].set_ylabel(f"{label}, accuracy")
    for axes in grid[-1]:
        axes.set_xlabel("training step")
    for (scenario, background, method, _), values in sorted(lines.items(), key=lambda item: methods.index(item[0][2])):
        axes = grid[spec.backgrounds.index(background), spec.scenarios.index(scenario)]
        steps, seeds = zip(*sorted(values.items()), strict=True)
        name, marker = "accuracy" if method == "model" else f"{label} of {method}", "o" if len(steps) == 1 else None
        axes.plot(steps, [np.mean(of) for of in seeds], label=name, marker=marker, **styles[method])
        band = {"color": styles[method]["color"], "alpha": 0.15, "lw": 0}
        axes.fill_between(steps, list(map(min, seeds)), list(map(max, seeds)), **band)
    handles = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
    title = f"mean and range of {spec.seeds} seeds" if spec.seeds > 1 else None
    small: dict[str, Any] = {"fontsize": "small", "title_fontsize": "small", "frameon": False}
    figure.legend(handles=[*handles.values()], title=title, loc="outside upper center", ncols=len(handles), **small)
    return figure
