"""An image with its map and mask, and what a figure shows."""

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

NUMBERS = np.random.default_rng(0)
IMAGE = torch.from_numpy(NUMBERS.random((3, 6, 9)))
MAP = NUMBERS.random((6, 9))
MASK = NUMBERS.random((6, 9)) > 0.6


def texts(figure: Figure) -> set[str]:
    """All texts of a figure."""
    return {text.get_text() for text in figure.findobj(matplotlib.text.Text)}


def pixels(axes) -> np.ndarray:
    """The pixels (H,W,3) drawn into an axes."""
    return np.asarray(axes.images[0].get_array())


def colour_bar(figure: Figure):
    (bar,) = [axes for axes in figure.axes if hasattr(axes, "_colorbar")]
    return bar
