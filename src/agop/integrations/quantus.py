"""agop's methods as an `explain_func` for Quantus' metrics. Quantus itself isn't imported."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from agop.explanation import explain
from agop.methods import Method
from agop.model.layers import Layer
from agop.prior.agop import AGOP


def as_quantus(
    method: str | Method = "agop",
    prior: AGOP | None = None,
    layer: Layer = None,
    batch_size: int | None = None,
) -> Callable[..., NDArray[Any]]:
    """A method as Quantus' `explain_func`: maps (N,1,H,W), non-negative, summed over channels.

    It explains the targets that Quantus passes, its y_batch, on the model's device: Quantus' `device` is ignored.

    Args:
        method: A method or its name.
        prior: The AGOP of the model, for methods that need one.
        layer: For methods with a layer: its name or module.
        batch_size: Most images per forward pass.

    Returns:
        A function of (model, inputs, targets), which raises what `agop.explain` raises.

    Raises:
        PriorError: When called: the method needs a prior.

    Example:
        >>> pointing_game = quantus.PointingGame()
        >>> pointing_game(model, x, y, s_batch=masks, explain_func=as_quantus("agop-weighted", prior))
    """

    def explain_func(model: nn.Module, inputs: Any, targets: Any = None, *, device: Any = None) -> NDArray[Any]:
        # A copy: torch warns about read-only arrays, and Quantus passes them.
        images = inputs.detach() if isinstance(inputs, torch.Tensor) else torch.tensor(np.asarray(inputs))
        maps = explain(model, images, method, prior, targets, layer, batch_size)
        return np.ascontiguousarray(maps[:, None].cpu().numpy())

    return explain_func
