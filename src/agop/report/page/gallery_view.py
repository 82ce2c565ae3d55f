"""The gallery: some samples of each place, their masks' outlines, every map, and the scores of each."""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from agop.report.page.map_bytes import factor, packed
from agop.report.page.outlines import outline
from agop.report.run import Run
from agop.runs.gallery import Gallery
from agop.runs.spec import Cell
from agop.system.files import read_bytes

_LARGEST_PICTURE = 256
_MOST_CLASSES = 12


def gallery(run: Run, scenario: str, background: str) -> dict[str, Any] | None:
    """What the page draws of a scenario and background; None if the run holds no pictures."""
    folder = run.folder / "cells" / Cell(scenario, background, 0).name
    found = Gallery.load(folder)
    if found is None:
        return None
    shape = next(iter(found.maps.values()), found.pictures[..., 0]).shape
    step = factor(shape)
    return {
        "height": int(shape[1]),
        "width": int(shape[2]),
        "step": step,
        "rows": -(-int(shape[1]) // step),
        "columns": -(-int(shape[2]) // step),
        "names": _which(run, scenario, found),
        "spread": found.places is not None,
        "pictures": [_png(picture) for picture in found.pictures],
        "labels": _names(run, scenario, found.labels),
        "predicted": _names(run, scenario, found.predicted),
        "right": [None if a < 0 else bool(a == b) for a, b in zip(found.labels, found.predicted, strict=True)],
        "outlines": {kind: [outline(mask) for mask in masks] for kind, masks in found.masks.items()},
        "maps": {method: packed(found.maps[method]) for method in _ordered(run, found)},
        "scores": _scores(run, scenario, background, _places(found)),
        "classes": _by_class(run, scenario, background, found),
    }


def _ordered(run: Run, found: Gallery) -> list[str]:
    """The methods that have maps, in the order of the run."""
    known = [method for method in (*run.spec.methods, *run.spec.sensitivity) if method in found.maps]
    return [*known, *(method for method in found.maps if method not in known)]


def chosen(run: Run, shown: dict[str, Any]) -> str:
    """Which samples a gallery shows, in words."""
    count, whole = len(shown["pictures"]), run.spec.test_images
    if not shown["spread"]:
        return f"the first {count} of the {'test data of seed 0' if run.spec.epochs else 'images given'}"
    return "all images given" if count == whole else f"{count} of the {whole:,} images given, at equal distances"


def _places(found: Gallery) -> list[int]:
    """Where the samples stand in the data."""
    return list(range(len(found.pictures))) if found.places is None else [int(place) for place in found.places]


def _which(run: Run, scenario: str, found: Gallery) -> list[str]:
    """What each sample is called: by its file if that is known, by its place if it is not one of the first."""
    told = (run.about.get("samples") or {}).get(scenario) or []
    if len(told) == len(found.pictures):
        return [str(name) for name in told]
    return [] if found.places is None else [f"image {place + 1:,}" for place in found.places]


def _names(run: Run, scenario: str, classes: NDArray[np.int64]) -> list[str]:
    return [class_name(run, scenario, int(number)) for number in classes]


def class_name(run: Run, scenario: str, number: int) -> str:
    """What a class is called; nothing for −1, which nobody knows."""
    if number < 0:
        return ""
    names = (run.about.get("classes") or {}).get(scenario) or []
    return str(names[number]) if number < len(names) else f"class {number}"


def _scores(run: Run, scenario: str, background: str, places: list[int]) -> dict[str, dict[str, dict[str, list[Any]]]]:
    """The samples' scores by kind of masks, method and metric; None where one is not defined."""
    found: dict[str, dict[str, dict[str, list[Any]]]] = {}
    for key, values in run.samples(scenario, background).items():
        method, metric = _parts(run, key)
        kind = key[: -len(f"/{method}/{metric}")]
        found.setdefault(kind, {}).setdefault(method, {})[metric] = [
            _defined(values[p]) for p in places if p < len(values)
        ]
    return found


def _parts(run: Run, key: str) -> tuple[str, str]:
    """Method and metric of kind/method/metric; a method may have a slash in its name."""
    kind = next((kind for kind in run.kinds if key.startswith(f"{kind}/")), key.split("/", 1)[0])
    method, _, metric = key[len(kind) + 1 :].rpartition("/")
    return method, metric


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 4)


def _by_class(run: Run, scenario: str, background: str, found: Gallery) -> dict[str, Any] | None:
    """diag(M) of each predicted class, its channels summed; of many classes those of the samples."""
    path = run.folder / "cells" / Cell(scenario, background, 0).name / "agop.safetensors"
    diagonals = load(read_bytes(path)).get("class_diagonals") if path.exists() else None
    if diagonals is None:
        return None
    every = list(range(len(diagonals)))
    if len(every) > _MOST_CLASSES:
        every = sorted({int(number) for number in (*found.labels, *found.predicted) if 0 <= number < len(diagonals)})
    maps = diagonals[every].sum(axis=1)
    return {"names": [class_name(run, scenario, number) for number in every], "maps": packed(maps)}


def _png(picture: NDArray[np.uint8]) -> str:
    """A picture (H,W,3) as the address of an image."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(picture))
    step = -(-max(image.size) // _LARGEST_PICTURE)
    buffer = io.BytesIO()
    (image.reduce(step) if step > 1 else image).save(buffer, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
