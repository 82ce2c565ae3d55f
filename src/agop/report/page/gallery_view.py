"""The page's gallery: samples of each place with mask outlines, maps and scores."""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agop.report.page.map_bytes import block_size, pack_maps
from agop.report.page.outlines import outline
from agop.report.run import Run
from agop.runs.gallery import Gallery
from agop.runs.spec import Cell

_LARGEST_PICTURE = 256
_MOST_CLASSES = 12


def gallery_view(run: Run, scenario: str, background: str) -> dict[str, Any] | None:
    """What the page draws for a scenario and background; None if the run has no gallery."""
    gallery = Gallery.load(run.first_cell(scenario, background).folder)
    if gallery is None:
        return None
    shape = gallery.pictures.shape[:3]
    step = block_size(shape)
    return {
        "height": int(shape[1]),
        "width": int(shape[2]),
        "step": step,
        "rows": -(-int(shape[1]) // step),
        "columns": -(-int(shape[2]) // step),
        "names": _sample_names(run, scenario, gallery),
        "spread": gallery.places is not None,
        "pictures": [_png(picture) for picture in gallery.pictures],
        "labels": _class_names(run, scenario, gallery.labels),
        "predicted": _class_names(run, scenario, gallery.predicted),
        "right": [None if a < 0 else bool(a == b) for a, b in zip(gallery.labels, gallery.predicted, strict=True)],
        "outlines": {kind: [outline(mask) for mask in masks] for kind, masks in gallery.masks.items()},
        "maps": {method: pack_maps(gallery.maps[method]) for method in _methods(run, gallery)},
        "scores": _scores(run, scenario, background, gallery),
        "classes": _class_maps(run, scenario, background, gallery),
    }


def _methods(run: Run, gallery: Gallery) -> list[str]:
    """The methods with maps, in the order of the run."""
    ordered = [method for method in (*run.spec.methods, *run.spec.sensitivity) if method in gallery.maps]
    return [*ordered, *(method for method in gallery.maps if method not in ordered)]


def selection(run: Run, view: dict[str, Any]) -> str:
    """Which samples a gallery shows, as a noun phrase."""
    count, total = len(view["pictures"]), run.spec.test_images
    if not view["spread"]:
        return f"the first {count} {'test images of seed 0' if run.spec.epochs else 'images'}"
    return f"all {total:,} images" if count == total else f"{count} evenly spaced images of {total:,}"


def _indices(gallery: Gallery) -> list[int]:
    """Index of each sample in the data."""
    return list(range(len(gallery.pictures))) if gallery.places is None else [int(index) for index in gallery.places]


def _sample_names(run: Run, scenario: str, gallery: Gallery) -> list[str]:
    """Name of each sample: its file, or else its number unless the samples are the first of the data."""
    names = run.about.samples.get(scenario, ())
    if len(names) == len(gallery.pictures):
        return list(names)
    return [] if gallery.places is None else [f"image {index + 1:,}" for index in gallery.places]


def _class_names(run: Run, scenario: str, classes: NDArray[np.int64]) -> list[str]:
    return [class_name(run, scenario, int(number)) for number in classes]


def class_name(run: Run, scenario: str, number: int) -> str:
    """Name of a class; empty for −1, an unknown label."""
    if number < 0:
        return ""
    names = run.about.classes.get(scenario, ())
    return names[number] if number < len(names) else f"class {number}"


def _scores(run: Run, scenario: str, background: str, gallery: Gallery) -> dict[str, dict[str, dict[str, list[Any]]]]:
    """The samples' scores by kind of masks, method and metric; None if undefined."""
    scores: dict[str, dict[str, dict[str, list[Any]]]] = {}
    indices = _indices(gallery)
    for key, values in run.samples(Cell(scenario, background, 0)).items():
        method, metric = _parts(run, key)
        if method == "model":
            continue
        kind = key[: -len(f"/{method}/{metric}")]
        if kind not in gallery.masks:
            continue  # scores of other images, such as a benchmark's grids
        defined = [_defined(values[index]) for index in indices if index < len(values)]
        scores.setdefault(kind, {}).setdefault(method, {})[metric] = defined
    return scores


def _parts(run: Run, key: str) -> tuple[str, str]:
    """Method and metric of a key kind/method/metric; a method's name may contain a slash."""
    kind = next((kind for kind in run.kinds if key.startswith(f"{kind}/")), key.split("/", 1)[0])
    method, _, metric = key[len(kind) + 1 :].rpartition("/")
    return method, metric


def _defined(value: float) -> float | None:
    return round(float(value), 4) if math.isfinite(value) else None


def _class_maps(run: Run, scenario: str, background: str, gallery: Gallery) -> dict[str, Any] | None:
    """diag(M) per predicted class, channels summed; of more than twelve classes only those of the samples."""
    diagonals = run.first_cell(scenario, background).class_diagonals()
    if diagonals is None:
        return None
    classes = list(range(len(diagonals)))
    if len(classes) > _MOST_CLASSES:
        classes = sorted({int(n) for n in (*gallery.labels, *gallery.predicted) if 0 <= n < len(diagonals)})
    maps = diagonals[classes].sum(axis=1)
    return {"names": [class_name(run, scenario, number) for number in classes], "maps": pack_maps(maps)}


def _png(picture: NDArray[np.uint8]) -> str:
    """A picture (H,W,3) as a data URL of a PNG."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(picture))
    step = -(-max(image.size) // _LARGEST_PICTURE)
    buffer = io.BytesIO()
    (image.reduce(step) if step > 1 else image).save(buffer, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
