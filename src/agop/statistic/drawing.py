"""diag(M) as pictures, and an AGOP as HTML for notebooks."""

from __future__ import annotations

import base64
import html
import io
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from agop.statistic.concentration import Overview, Part
from agop.statistic.description import facts

if TYPE_CHECKING:
    from agop.statistic.agop import AGOP

# Pictures in one overview: all samples, and the most concentrated classes.
_MOST = 24
# Text in a PNG's header: such a file may be overwritten.
_MARK = ("Software", "agop show")
# Ends and middle of matplotlib's inferno.
_BLACK, _MIDDLE, _WHITE = "#000004", "#bb3754", "#fcffa4"
_ROW = '<tr><th style="text-align:left">{name}</th><td style="text-align:left">{text}</td></tr>'
_FIGURE = (
    '<figure style="margin:0;width:150px"><figcaption>{caption}</figcaption>'
    '<img alt="{caption}" style="width:150px;image-rendering:pixelated" src="data:image/png;base64,{png}"></figure>'
)


def panels(prior: AGOP, overview: Overview) -> list[tuple[str, Image.Image]]:
    """Caption and picture of all samples and of the most concentrated classes, at most 24."""
    return [(_caption(part), picture(_map(prior, part))) for part in (overview.whole, *overview.classes)[:_MOST]]


def picture(saliency: Tensor) -> Image.Image:
    """Picture of a map (H,W). The brightest colour is its maximum, the scale a square root: the RMS gradient."""
    strength = saliency.double().sqrt()
    gray = (255 * strength / strength.max().clamp(min=1e-300)).round().byte()
    return ImageOps.colorize(Image.fromarray(gray.numpy()), _BLACK, _WHITE, _MIDDLE)


def html_of(prior: AGOP) -> str:
    """HTML of an AGOP: what it holds, its concentration, and its maps."""
    overview = Overview.of(prior)
    rows = "".join(_ROW.format(name=html.escape(name), text=html.escape(text)) for name, text in facts(prior).items())
    figures = "".join(
        _FIGURE.format(caption=html.escape(caption), png=base64.b64encode(png(image)).decode())
        for caption, image in panels(prior, overview)
    )
    return (
        f"<div><b>{html.escape(repr(prior))}</b><table>{rows}</table><p>{html.escape(overview.line)}</p>"
        f'<div style="display:flex;flex-wrap:wrap;gap:8px">{figures}</div></div>'
    )


def _map(prior: AGOP, part: Part) -> Tensor:
    by_class = prior.class_diagonals
    return (prior.diagonal if part.index is None or by_class is None else by_class[part.index]).sum(dim=0)


def _caption(part: Part) -> str:
    share = f"{part.hot.percent} % in {part.hot.pixels:,} px" if part.hot.share > 0 else "all zero"
    return f"{share}: {part.label}"


def png(image: Image.Image) -> bytes:
    """The bytes of a PNG file that `is_own_png` recognises."""
    mark = PngInfo()
    mark.add_text(*_MARK)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", pnginfo=mark)
    return buffer.getvalue()


def is_own_png(path: Path) -> bool:
    """True for a file that `png` made."""
    name, value = _MARK
    try:
        with Image.open(path) as image:
            return image.info.get(name) == value
    except (OSError, Image.DecompressionBombError, ValueError, SyntaxError):
        return False
