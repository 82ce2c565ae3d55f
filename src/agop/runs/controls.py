"""Controls: maps that don't depend on the model. They are shown beside the methods and never compete for "best"."""

from __future__ import annotations

# Name → what the map is, one sentence for a report.
CONTROLS = {
    "random": "Control: uniform noise, different for every image.",
    "x": "Control: the absolute values of the image.",
    "sobel": "Control: the edges of the image, by a Sobel filter.",
    "laplace": "Control: the second derivative of the image, by a Laplace filter.",
    "centre": "Control: a Gaussian blob in the middle, the same for every image.",
    "mean-mask": "Control: the mean mask of the training data, the same for every image.",
}


def is_control(method: str) -> bool:
    """True for a control, also one with options: random:seed=3."""
    return method.partition(":")[0] in CONTROLS
