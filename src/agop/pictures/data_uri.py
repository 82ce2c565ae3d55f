"""An image inside an HTML page."""

from __future__ import annotations

import base64
import io
from typing import Any

from PIL import Image

from agop.pictures.heat import Picture

# Larger images are sent as JPEG, so that fifty images by nine methods still fit in a page.
_LOSSLESS = 64


def has_few_pixels(picture: Picture) -> bool:
    """True for an image that a page enlarges: its pixels should stay sharp."""
    return max(picture.shape[:2]) <= _LOSSLESS


def data_uri(picture: Picture, side: int | None = None, quality: int = 92) -> str:
    """The image (H,W,3) as the address of an <img>. A larger one is scaled down to `side`."""
    image = Image.fromarray(picture)
    if side is not None:
        image.thumbnail((side, side))
    few = has_few_pixels(picture)
    options: dict[str, Any] = {"format": "PNG"} if few else {"format": "JPEG", "quality": quality}
    buffer = io.BytesIO()
    image.save(buffer, **options)
    return f"data:image/{'png' if few else 'jpeg'};base64,{base64.b64encode(buffer.getvalue()).decode()}"
