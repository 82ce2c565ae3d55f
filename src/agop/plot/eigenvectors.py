"""filters() and eigenimages(): the directions in patches and in images that a model relies on most."""

from __future__ import annotations

from matplotlib.figure import Figure
from torch import nn

from agop.errors import InputError, LayerError, PriorError
from agop.model.layers import named_layer
from agop.model.patch_layer import convolution_weight
from agop.model.probe import check_model, unwrapped
from agop.pictures.heat import signed_picture
from agop.plot.figures import draw_panel, figure
from agop.statistic.agop import AGOP
from agop.statistic.eigenvectors import Eigenvectors, patch_eigenvectors, sketch_eigenvectors

_SIDE, _TITLE = 1.25, 0.35


def filters(prior: AGOP, model: nn.Module, *, count: int = 8) -> Figure:
    """Figure of the top eigenvectors of WᵀSW (C,kh,kw): the patterns in patches that the model relies on most.

    W are the weights of the prior's layer, a convolution, and S is its patch matrix. Above each filter is its share of
    the trace. Gray is 0; the sign is arbitrary.
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
    _check_count(count)
    return _figure(patch_eigenvectors(prior.patch_matrix.numpy(), convolution_weight(layer).numpy(), count))


def eigenimages(prior: AGOP, *, count: int = 6) -> Figure:
    """Figure of the top eigenvectors (C,H,W) of the prior's sketch of M. Above each is its share of tr(M).

    Gray is 0; the sign is arbitrary.
    """
    _check_count(count)
    return _figure(sketch_eigenvectors(prior.sketch_rows.numpy(), prior.count, prior.diagonal.numpy(), count))


def _check_count(count: int) -> None:
    if count < 1:
        raise InputError(f"count is {count}: give a positive integer")


def _figure(eigenvectors: Eigenvectors) -> Figure:
    """The eigenvectors in a row, each below its share."""
    number, _, height, width = eigenvectors.vectors.shape
    if number == 0:
        raise PriorError("all gradients are zero: the model's logits don't depend on its input")
    drawn = figure(_SIDE * number, _SIDE * height / width + _TITLE)
    panels = zip(eigenvectors.vectors, eigenvectors.percents, strict=True)
    for axes, (vector, percent) in zip(drawn.subplots(1, number, squeeze=False)[0], panels, strict=True):
        draw_panel(axes, signed_picture(vector))
        axes.set_title(percent, fontsize="small")
    return drawn
