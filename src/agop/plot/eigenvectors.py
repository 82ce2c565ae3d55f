"""filters() and eigenimages(): the directions in patches and in images that a model relies on most."""

from __future__ import annotations

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from agop.errors import InputError, LayerError, PriorError
from agop.model.layers import named_layer
from agop.model.patch_layer import convolution_weight
from agop.model.probe import check_model, unwrapped
from agop.plot.figures import draw_panel, figure
from agop.plot.inputs import picture_of
from agop.statistic.agop import AGOP
from agop.statistic.patch_matrix import square_root

_SIDE, _TITLE = 1.25, 0.35


def filters(prior: AGOP, model: nn.Module, *, count: int = 8) -> Figure:
    """Figure of the top eigenvectors of WᵀSW (C,kh,kw): the patterns in patches that the model relies on most.

    W are the weights of the prior's layer, a convolution, and S is its patch matrix. Above each filter is its share of
    the trace. Grey is 0; the sign is arbitrary.
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
    weight = convolution_weight(layer)
    return _figure(square_root(prior.patch_matrix) @ weight.flatten(1), weight.shape[1:], count)


def eigenimages(prior: AGOP, *, count: int = 6) -> Figure:
    """Figure of the top eigenvectors (C,H,W) of the prior's sketch of M. Above each is its share of tr(M).

    Grey is 0; the sign is arbitrary.
    """
    rows = prior.sketch_rows.flatten(1) / prior.count**0.5
    return _figure(rows, prior.diagonal.shape, count, float(prior.diagonal.sum()))


def _figure(rows: Tensor, shape: torch.Size, count: int, trace: float | None = None) -> Figure:
    """The top right singular vectors of rows (R,…), as images of a shape (C,H,W)."""
    if count < 1:
        raise InputError(f"count is {count}: give a positive integer")
    _, values, vectors = torch.linalg.svd(rows, full_matrices=False)
    shares = values.square() / (values.square().sum() if trace is None else trace)
    number = min(count, int((values > 0).sum()))
    if number == 0:
        raise PriorError("all gradients are zero: the model's logits don't depend on its input")
    width, height = _SIDE * number, _SIDE * shape[1] / shape[2] + _TITLE
    drawn = figure(width, height)
    for axes, vector, share in zip(drawn.subplots(1, number, squeeze=False)[0], vectors, shares, strict=False):
        draw_panel(axes, picture_of(_signed_picture(vector.reshape(shape))))
        axes.set_title(f"{100 * float(share):.2g} %", fontsize="small")
    return drawn


def _signed_picture(vector: Tensor) -> Tensor:
    """Values in 0..1 (1 or 3,H,W), 0.5 where the vector (C,H,W) is 0. Its largest absolute value is positive."""
    vector = vector if len(vector) in (1, 3) else vector.mean(dim=0, keepdim=True)
    extreme = vector.flatten()[vector.abs().argmax()]
    return (0.5 + 0.5 * vector / extreme if extreme != 0 else torch.full_like(vector, 0.5)).clamp(0, 1)
