"""The page's eigenvectors: what the first layer of each scenario's first network looks for, and its eigenimages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agop.pictures.data_uri import data_uri
from agop.pictures.heat import signed_picture
from agop.report.run import Run
from agop.runs.cell_files import PRIOR, WEIGHTS, Array, CellFiles, numbers
from agop.runs.spec import Cell
from agop.statistic.eigenvectors import Eigenvectors, patch_eigenvectors, sketch_eigenvectors
from agop.statistic.provenance import Provenance

Arrays = dict[str, Array]
# Eigenvectors of each kind, and the largest side of their pictures in pixels.
_COUNT, _SIDE = 6, 128
_PARTS = {"patch_matrix", "sketch"}


@dataclass(frozen=True)
class Panel:
    """An eigenvector as a picture (the address of an <img>), and its share of the trace in percent."""

    picture: str
    percent: str


@dataclass(frozen=True)
class EigenvectorView:
    """The eigenvectors of one cell. `residual` is the share of tr(M) that the sketch lacks, in percent."""

    place: str
    layer: str | None
    filters: list[Panel]
    eigenimages: list[Panel]
    residual: str


def eigenvector_views(run: Run) -> list[EigenvectorView]:
    """The first cell of each scenario, without those whose prior has nothing to show."""
    first: dict[str, Cell] = {}
    for cell in run.spec.cells():
        first.setdefault(cell.scenario, cell)
    views = [_view(_place(run, cell), run.cells[cell]) for cell in first.values()]
    return [view for view in views if view.filters or view.eigenimages]


def _place(run: Run, cell: Cell) -> str:
    background = f" / {cell.background}" if len(run.spec.backgrounds) > 1 else ""
    return f"{cell.scenario}{background}{', seed 0' if run.spec.seeds > 1 else ''}"


def _view(place: str, cell: CellFiles) -> EigenvectorView:
    with cell.reading(PRIOR):
        prior = cell.arrays(PRIOR) or {}
        provenance = Provenance.from_dict(cell.prior_values()) if prior.keys() & _PARTS else Provenance()
        filters = _filters(cell, prior, provenance.layer) if "patch_matrix" in prior else []
        eigenimages, residual = _eigenimages(prior, provenance.count) if "sketch" in prior else ([], "")
    return EigenvectorView(place, provenance.layer, filters, eigenimages, residual)


def _filters(cell: CellFiles, prior: Arrays, layer: str | None) -> list[Panel]:
    """Eigenvectors of WᵀSW; none unless the cell has the weights of the layer, a convolution of the images."""
    weights, name = cell.arrays(WEIGHTS) or {}, f"{layer}.weight"
    if name not in weights or weights[name].ndim != 4:
        return []
    channels = len(numbers(prior, "diagonal", [None] * 3))
    matrix = _finite(prior, "patch_matrix", [None, None])
    weight = _finite(weights, name, [len(matrix), None, None, None])
    # Another number of channels: a layer deep in the network, or one with groups.
    return _panels(patch_eigenvectors(matrix, weight, _COUNT)) if weight.shape[1] == channels else []


def _eigenimages(prior: Arrays, samples: int | None) -> tuple[list[Panel], str]:
    """Eigenvectors of the sketch, and the share of tr(M) that it lacks, in percent."""
    diagonal = _finite(prior, "diagonal", [None] * 3)
    sketch = _finite(prior, "sketch", [None, *diagonal.shape])
    if not samples or not diagonal.sum() > 0:
        return [], ""
    panels = _panels(sketch_eigenvectors(sketch, samples, diagonal, _COUNT))
    residual = (diagonal - np.square(sketch).sum(axis=0) / samples).clip(0)
    return panels, f"{100 * residual.sum() / diagonal.sum():.3g} %"


def _finite(arrays: Arrays, name: str, shape: Sequence[int | None]) -> NDArray[np.float64]:
    """The array of that name in float64. Raises ValueError unless it has this shape and is finite."""
    array = numbers(arrays, name, shape).astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} isn't finite")
    return array


def _panels(eigenvectors: Eigenvectors) -> list[Panel]:
    pictures = [data_uri(signed_picture(vector), _SIDE) for vector in eigenvectors.vectors]
    return [Panel(*pair) for pair in zip(pictures, eigenvectors.percents, strict=True)]
