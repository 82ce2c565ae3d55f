"""Controls: maps that don't depend on the model, or on one layer only.

They are shown beside the methods and never compete for "best".
"""

from __future__ import annotations

# Name → what the map is, one sentence for a report.
CONTROLS = {
    "random": "Control: uniform noise, different for every image.",
    "x": "Control: the absolute values of the image.",
    "sobel": "Control: the edges of the image, by a Sobel filter.",
    "laplace": "Control: the second derivative of the image, by a Laplace filter.",
    "activation-norm": "Control: the norm of the first convolution's outputs. It depends on that layer only, without "
    "gradients.",
    "agop:what=activation-norm": "Control: agop with the norm of the first layer's outputs as its factor *what*.",
    "agop:what=sobel": "Control: agop with the edges of the image as its factor *what*.",
    "agop:what=mean-difference": "Control: agop with the distance to the mean training image as its factor *what*.",
    "centre": "Control: a Gaussian blob in the middle, the same for every image.",
    "mean-mask": "Control: the mean mask of the training data, the same for every image.",
}


# The method agop with another factor *what*.
AGOP_CONTROLS = tuple(name for name in CONTROLS if name.startswith("agop:"))
_OF_THE_MODEL = ("activation-norm", "agop")


def is_control(method: str) -> bool:
    """True for a control, also one with options: random:seed=3."""
    return method in CONTROLS or method.partition(":")[0] in CONTROLS


def is_model_independent(control: str) -> bool:
    """True for a control that doesn't depend on the model at all."""
    return control.partition(":")[0] not in _OF_THE_MODEL
