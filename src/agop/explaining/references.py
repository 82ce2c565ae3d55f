"""Reference images: other images that a method starts from."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from agop.errors import InputError
from agop.statistic.agop import AGOP

# Values above this multiple of the other images' largest value, and of 1, are of another range, as 0..255 beside 0..1.
_OTHER_RANGE = 64


def references_for(name: str, references: Tensor | None, prior: AGOP | None, images: Tensor) -> Tensor:
    """Reference images (M,C,H,W) of the method for these images: the references, else those of the prior."""
    if references is not None:
        _check_references(references, images)
        return references
    if prior is None or prior.reference_images is None:
        raise InputError(
            f"{name} needs reference images: pass references= with images (M,C,H,W), for example from the training "
            "data, or --references FOLDER on the command line; or pass a prior that agop.fit of this version made; or "
            "one with training images, from `agop fit --references 64`"
        )
    prior.check_shape(images)
    return prior.reference_images.to(images)


def _check_references(references: Any, images: Tensor) -> None:
    """Raise unless the references are at least one image of the images' shape, finite, and not of another range."""
    if not isinstance(references, Tensor):
        raise InputError(f"references are a {type(references).__name__}: give a torch tensor (M,C,H,W)")
    shape, expected = tuple(references.shape), tuple(images.shape[1:])
    if references.ndim != 4 or not len(references) or shape[1:] != expected:
        raise InputError(f"references have shape {shape}, images {tuple(images.shape)}: give (M, {str(expected)[1:]}")
    if not references.is_floating_point():
        raise InputError(f"references are {references.dtype}, images {images.dtype}: convert and scale them alike")
    if not bool(references.isfinite().all()):
        raise InputError("references contain NaN or infinite values: remove these images")
    ours, theirs = (float(values.nan_to_num(0, 0, 0).abs().max()) for values in (references, images))
    if max(ours, theirs) > _OTHER_RANGE * max(1.0, min(ours, theirs)):
        raise InputError(
            f"references have values up to {ours:g}, images up to {theirs:g}: convert and scale them alike"
        )
