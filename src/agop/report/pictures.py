"""The page's pictures: gallery, snapshots of the training, eigenvectors."""

import base64
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agop.images.overlays import DEFAULT_COLOURING, data_uri, signed_picture, top_value
from agop.io import safetensors_metadata
from agop.prior.matrices import Eigenvectors, patch_eigenvectors, sketch_eigenvectors
from agop.report.folder import PRIOR, WEIGHTS, Arrays, Cell, CellFiles, Gallery, curves
from agop.report.run import Run

# Largest sides of maps and eigenvectors, and of images, in pixels.
_SIDE, _IMAGE_SIDE = 128, 256
_MOST_CLASSES, _MOST_FRAMES, _MOST_EIGENVECTORS = 12, 60, 6
# An eigenvector as a picture (the address of an <img>), and its share of the trace in percent.
Panel = tuple[str, str]


def outline(mask: NDArray[Any]) -> str:
    """SVG path around the non-zero pixels of a mask (H,W); coordinates are pixels from the upper left corner."""
    return "".join(
        f"M{x} {y}{f'H{right}' if y == down else f'V{down}'}" for x, y, right, down in outline_segments(mask)
    )


def outline_segments(mask: NDArray[Any]) -> Iterator[tuple[int, int, int, int]]:
    """Start and end (x, y, x, y) of the lines around the non-zero pixels of a mask (H,W), across and then down."""
    inside = np.pad(np.asarray(mask) != 0, 1)
    across = inside[1:, 1:-1] != inside[:-1, 1:-1]  # between a pixel and the one above it (H+1,W)
    down = inside[1:-1, 1:] != inside[1:-1, :-1]  # between a pixel and the one left of it (H,W+1)
    for edges, turned in ((across, False), (down.T, True)):
        steps = np.diff(np.pad(edges, ((0, 0), (1, 1))).astype(np.int8), axis=1)
        for line, row in enumerate(steps):
            for start, end in zip(np.flatnonzero(row == 1).tolist(), np.flatnonzero(row == -1).tolist(), strict=True):
                yield (line, start, line, end) if turned else (start, line, end, line)


def pack_maps(maps: NDArray[Any]) -> dict[str, Any]:
    """Maps (S,H,W) as base64 bytes with the share of each map's top value: byte b of a map means top · (b / 255)².

    Larger shares are clipped to the top. A map that is all zero or not finite has no shares: its top is None.
    """
    small = block_sums(np.asarray(maps, dtype=np.float64))
    sums = small.sum(axis=(1, 2), keepdims=True)
    sound = np.isfinite(sums) & (sums > 0)
    shares = np.where(sound, small, 0) / np.where(sound, sums, 1)
    tops = np.array([top_value(share, DEFAULT_COLOURING.percentile) for share in shares])
    return {
        "bytes": base64_text(quantise(shares, tops[:, None, None])),
        "tops": [float(f"{top:.6g}") if top > 0 else None for top in tops],
    }


def quantise(values: NDArray[np.float64], top: NDArray[np.float64] | float) -> NDArray[np.uint8]:
    """255 · √(value / top), rounded, at most 255."""
    whole = np.where(np.asarray(top) > 0, top, 1)
    return np.asarray(np.round(255 * np.sqrt(np.clip(values / whole, 0, 1))).astype(np.uint8))


def block_sums(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Maps (S,H,W) with at most 128 pixels per side. Blocks are summed, so that the total stays the same."""
    step = _blocks(maps.shape[1:])
    height, width = (np.arange(0, side, step) for side in maps.shape[1:])
    return np.asarray(np.add.reduceat(np.add.reduceat(maps, height, axis=1), width, axis=2))


def _blocks(sides: tuple[int, ...], most: int = _SIDE) -> int:
    """Side of the blocks that become one pixel, so that both sides have at most `most` pixels."""
    return -(-max(sides) // most)


def base64_text(values: NDArray[np.uint8]) -> str:
    """Bytes as base64 text."""
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def gallery_view(run: Run, scenario: str, background: str) -> dict[str, Any] | None:
    """What the page draws for a scenario and background; None if the run has no gallery."""
    gallery = Gallery.load(run.first_cell(scenario, background).folder)
    if gallery is None:
        return None
    count, height, width = map(int, gallery.pictures.shape[:3])
    step = _blocks((height, width))
    # A sample is named by its file, or else by its number unless the samples are the first of the data.
    names = list(run.about.samples.get(scenario, ()))
    if len(names) != count:
        names = [] if gallery.places is None else [f"image {index + 1:,}" for index in gallery.places]
    ordered = dict.fromkeys((*run.spec.methods, *run.spec.sensitivity, *gallery.maps))
    return {
        "height": height,
        "width": width,
        "step": step,
        "rows": -(-height // step),
        "columns": -(-width // step),
        "names": names,
        "spread": gallery.places is not None,
        "pictures": [_png(picture) for picture in gallery.pictures],
        "labels": [_class_name(run, scenario, int(number)) for number in gallery.labels],
        "predicted": [_class_name(run, scenario, int(number)) for number in gallery.predicted],
        "right": [None if a < 0 else bool(a == b) for a, b in zip(gallery.labels, gallery.predicted, strict=True)],
        "outlines": {kind: [outline(mask) for mask in masks] for kind, masks in gallery.masks.items()},
        "maps": {method: pack_maps(gallery.maps[method]) for method in ordered if method in gallery.maps},
        "scores": _scores(run, scenario, background, gallery),
        "classes": _class_maps(run, scenario, background, gallery),
    }


def selection(run: Run, view: dict[str, Any]) -> str:
    """Which samples a gallery shows, as a noun phrase."""
    count, total = len(view["pictures"]), run.spec.test_images
    if not view["spread"]:
        return f"the first {count} {'test images of seed 0' if run.spec.epochs else 'images'}"
    return f"all {total:,} images" if count == total else f"{count} evenly spaced images of {total:,}"


def _class_name(run: Run, scenario: str, number: int) -> str:
    """Name of a class; empty for −1, an unknown label."""
    names = run.about.classes.get(scenario, ())
    return "" if number < 0 else names[number] if number < len(names) else f"class {number}"


def _scores(run: Run, scenario: str, background: str, gallery: Gallery) -> dict[str, dict[str, dict[str, list[Any]]]]:
    """The samples' scores by kind of masks, method and metric; None if undefined. Not those of other images (grids)."""
    scores: dict[str, dict[str, dict[str, list[Any]]]] = defaultdict(lambda: defaultdict(dict))
    indices = range(len(gallery.pictures)) if gallery.places is None else gallery.places
    for key, values in run.samples(Cell(scenario, background, 0)).items():
        # The key is kind/method/metric; a method's name may contain a slash.
        kind = next((kind for kind in gallery.masks if key.startswith(f"{kind}/")), None)
        if kind is not None and not key.startswith(f"{kind}/model/"):
            method, _, metric = key[len(kind) + 1 :].rpartition("/")
            own = [float(values[index]) for index in indices if index < len(values)]
            scores[kind][method][metric] = [round(value, 4) if math.isfinite(value) else None for value in own]
    return scores


def _class_maps(run: Run, scenario: str, background: str, gallery: Gallery) -> dict[str, Any] | None:
    """diag(M) per predicted class, channels summed; of more than twelve classes only those of the samples."""
    diagonals = run.first_cell(scenario, background).arrays(PRIOR).get("class_diagonals")
    if diagonals is None:
        return None
    classes = list(range(len(diagonals)))
    if len(classes) > _MOST_CLASSES:
        classes = sorted({int(n) for n in (*gallery.labels, *gallery.predicted) if 0 <= n < len(diagonals)})
    maps = diagonals[classes].sum(axis=1)
    return {"names": [_class_name(run, scenario, number) for number in classes], "maps": pack_maps(maps)}


def _png(picture: NDArray[np.uint8]) -> str:
    """A picture (H,W,3) as a data URL of a PNG."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(picture))
    buffer = io.BytesIO()
    image.reduce(_blocks(image.size, _IMAGE_SIDE)).save(buffer, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def training_history(run: Run, scenario: str, background: str) -> dict[str, Any] | None:
    """Curves and frames of a scenario and background; None if there are no snapshots.

    Curves are by method and metric: the steps, and mean, minimum and maximum over seeds at each step.
    """
    histories: dict[str, dict[str, Any]] = defaultdict(dict)
    rows = [row for row in run.convergence if (row["scenario"], row["background"]) == (scenario, background)]
    for (_, _, method, metric), by_step in curves(rows).items():
        steps = sorted(by_step)
        values = [by_step[step] for step in steps]
        histories[method][metric] = {
            "steps": steps,
            "mean": [round(float(np.mean(seeds)), 4) for seeds in values],
            "low": [round(min(seeds), 4) for seeds in values],
            "high": [round(max(seeds), 4) for seeds in values],
            "seeds": max(map(len, values)),
        }
    return {"curves": histories, "frames": _frames(run, scenario, background)} if histories else None


def _frames(run: Run, scenario: str, background: str) -> dict[str, Any] | None:
    """diag(M), channels summed, at up to 60 evenly spaced snapshots of seed 0, all on one scale."""
    files = run.first_cell(scenario, background)
    names = files.snapshots()
    if not names:
        return None
    indices = np.unique(np.linspace(0, len(names) - 1, min(len(names), _MOST_FRAMES)).round().astype(int))
    steps = [list(names)[index] for index in indices]
    diagonals = (files.arrays(names[step])["diagonal"].astype(np.float64) for step in steps)
    small = block_sums(np.stack([diagonal.sum(axis=0) for diagonal in diagonals]))
    return {
        "steps": steps,
        "rows": small.shape[1],
        "columns": small.shape[2],
        "top": float(f"{small.max():.6g}"),
        "bytes": base64_text(quantise(small, float(small.max()))),
    }


def eigenvector_views(run: Run) -> list[dict[str, Any]]:
    """Eigenvectors of the first cell of each scenario, without those whose prior has nothing to show.

    `residual` is the share of tr(M) that the sketch lacks, in percent.
    """
    views = []
    for _, cells in groupby(run.spec.cells(), attrgetter("scenario")):
        cell = next(cells)
        background = f" / {cell.background}" if len(run.spec.backgrounds) > 1 else ""
        place = f"{cell.scenario}{background}{', seed 0' if run.spec.seeds > 1 else ''}"
        files = run.cells[cell]
        prior = files.arrays(PRIOR)
        if prior.keys() & {"patch_matrix", "sketch"}:
            with files.reading(PRIOR):
                metadata = json.loads(safetensors_metadata(files.content(PRIOR))["agop"])
                layer = metadata.get("layer")
                filters = _filters(files, prior, layer) if "patch_matrix" in prior else []
                images, residual = _eigenimages(prior, metadata.get("count")) if "sketch" in prior else ([], "")
            shown = {"filters": filters, "eigenimages": images, "residual": residual}
            views += [{"place": place, "layer": layer, **shown}] if filters or images else []
    return views


def _filters(cell: CellFiles, prior: Arrays, layer: str | None) -> list[Panel]:
    """Eigenvectors of WᵀSW; none unless the cell has the weights of the layer, a convolution of the images."""
    weight = cell.arrays(WEIGHTS).get(f"{layer}.weight")
    # Another number of channels: a layer deep in the network, or one with groups.
    if weight is None or weight.ndim != 4 or weight.shape[1] != len(prior["diagonal"]):
        return []
    matrix, weight = prior["patch_matrix"].astype(np.float64), weight.astype(np.float64)
    return _panels(patch_eigenvectors(matrix, weight, _MOST_EIGENVECTORS))


def _eigenimages(prior: Arrays, samples: int | None) -> tuple[list[Panel], str]:
    """Eigenvectors of the sketch, and the share of tr(M) that it lacks, in percent."""
    diagonal, sketch = (prior[name].astype(np.float64) for name in ("diagonal", "sketch"))
    if not samples or not diagonal.sum() > 0:
        return [], ""
    panels = _panels(sketch_eigenvectors(sketch, samples, diagonal, _MOST_EIGENVECTORS))
    residual = (diagonal - np.square(sketch).sum(axis=0) / samples).clip(0)
    return panels, f"{100 * residual.sum() / diagonal.sum():.3g} %"


def _panels(eigenvectors: Eigenvectors) -> list[Panel]:
    pictures = (data_uri(signed_picture(vector), _SIDE) for vector in eigenvectors.vectors)
    return list(zip(pictures, eigenvectors.percents, strict=True))
