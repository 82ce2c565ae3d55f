"""Image files that agop opens, on the command line and in the app."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image, UnidentifiedImageError

from agop.errors import FileError

SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
# Formats that Pillow decodes itself: for PostScript, for example, it would start another program.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
# Pillow's tables for scaling take up to 48 bytes per pixel of a side.
_MOST_SIDE = 1_000_000


@contextmanager
def open_image(path: str | os.PathLike[str], kind: str = "an image") -> Iterator[Image.Image]:
    """The open image file. What goes wrong in the block raises FileError with the file's name."""
    try:
        with Image.open(path, formats=FORMATS) as file:
            if max(file.size) > _MOST_SIDE:
                raise ValueError(f"it is {file.width}×{file.height}, a side has at most {_MOST_SIDE:,} pixels")
            yield file
    except UnidentifiedImageError as error:
        raise FileError(f"{path} can't be read as {kind}: unknown format, use {', '.join(FORMATS)}") from error
    except Image.DecompressionBombError as error:
        raise FileError(f"{path} can't be read as {kind}: too many pixels, make it smaller ({error})") from error
    except (OSError, ValueError, SyntaxError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{path} can't be read as {kind}: {reason}") from error
