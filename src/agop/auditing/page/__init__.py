"""index.html of an audit: one self-contained page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from agop.pictures.data_uri import data_uri
from agop.pictures.heat import Picture, heat, pixels
from agop.web import environment, scripts, styles

if TYPE_CHECKING:
    from agop.auditing.finding import Finding
    from agop.auditing.result import Audit

# Images that contain a pattern most and least, and the least side of a picture on the page.
_SHOWN, _SIDE = 6, 112
_OUTLINE = (0, 255, 255)


def page(audit: Audit) -> str:
    """The whole page as HTML."""
    return (
        environment(__name__)
        .get_template("page.html")
        .render(
            styles=styles(__name__, "audit"),
            scripts=scripts(__name__),
            audit=audit,
            conclusion=audit.conclusion(),
            findings=[_view(audit, finding) for finding in audit.findings],
        )
    )


def _view(audit: Audit, finding: Finding) -> dict[str, Any]:
    images = finding.ranked
    low, high = ([float(end)] * images.shape[1] for end in (images.min(), images.max()))
    ends = {"most": images[:_SHOWN], "least": images[-_SHOWN:]}
    shown = {
        name: [_uri(picture, finding.region) for picture in pixels(part, low, high)] for name, part in ends.items()
    }
    diagonals = None if audit.prior is None else audit.prior.class_diagonals
    saliency = None if diagonals is None else diagonals[finding.class_index].sum(dim=0).sqrt().nan_to_num()
    return {
        "finding": finding,
        "name": audit.class_names[finding.class_index],
        "map": None if saliency is None else _uri(heat(np.asarray(saliency)), finding.region),
        **shown,
    }


def _uri(picture: Picture, region: Tensor | None) -> str:
    """The picture, enlarged to at least 112 pixels with sharp pixels, with the region's outline."""
    factor = max(1, -(-_SIDE // min(picture.shape[:2])))
    large = picture.repeat(factor, axis=0).repeat(factor, axis=1)
    if region is not None:
        inside = region.repeat_interleave(factor, dim=0).repeat_interleave(factor, dim=1)
        large[np.asarray(inside & ~_eroded(inside))] = _OUTLINE
    return data_uri(large)


def _eroded(region: Tensor) -> Tensor:
    """The pixels (H,W) whose neighbours are all in the region."""
    padded = torch.nn.functional.pad(region, (2, 2, 2, 2))
    return padded.unfold(0, 5, 1).unfold(1, 5, 1).flatten(2).all(dim=2)
