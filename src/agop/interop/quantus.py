"""agop's methods as an `explain_func` for Quantus' metrics. Quantus itself isn't imported."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from agop.explaining.explain import explain
from agop.methods import Method
from agop.model.layers import Layer
from agop.statistic.agop import AGOP


class ExplainFunction(Protocol):
    """Signature of the function that Quantus calls."""

    def __call__(self, model: nn.Module, inputs: Any, targets: Any = None, *, device: Any = None) -> NDArray[Any]:
        """Attributions (N,1,H,W) of the inputs (N,C,H,W) for the targets (N,)."""


def as_quantus(
    method: str | Method = "agop",
    prior: AGOP | None = None,
    layer: Layer = None,
    batch_size: int | None = None,
) -> ExplainFunction:
    """A method as Quantus' `explain_func`: maps (N,1,H,W), non-negative, summed over channels.

    Explains the targets that Quantus passes, its y_batch. The model stays on its device, so Quantus' `device` is
    ignored.
    """

    def explain_func(model: nn.Module, inputs: Any, targets: Any = None, *, device: Any = None) -> NDArray[Any]:
        # A copy: torch warns about read-only arrays, and Quantus passes them.
        images = inputs.detach() if isinstance(inputs, torch.Tensor) else torch.tensor(np.asarray(inputs))
        maps = explain(model, images, method, prior, targets, layer, batch_size)
        return np.ascontiguousarray(maps[:, None].cpu().numpy())

    return explain_func
