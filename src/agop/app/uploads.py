"""Uploaded files: images within the limits, or an error with the file's name."""

from __future__ import annotations

import warnings
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from agop.errors import FileError
from agop.pictures.formats import FORMATS
from agop.pictures.preprocessing import Preprocessing

MOST_BYTES = 20 * 2**20
# Gradio rejects all files of a drop if one is above its limit. Up to that limit, `read_upload` rejects just the one.
MOST_SENT_BYTES = 5 * MOST_BYTES
MOST_PIXELS = 50_000_000
MOST_FILES = 50
_MODES = {"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "LAB", "HSV"}


def read_upload(path: Path, preprocessing: Preprocessing) -> Image.Image:
    """The uploaded image, scaled and cropped for the model. Errors have the file's name, not its path."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's, about odd metadata of images that it can read
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            _check(path)
            return preprocessing.picture(path)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise FileError(f"{path.name}: has more than {_millions(MOST_PIXELS)} pixels: make it smaller") from error
    except UnidentifiedImageError as error:
        raise FileError(f"{path.name}: isn't an image: use {', '.join(FORMATS)}") from error
    except FileError as error:
        raise FileError(f"{path.name}: {str(error).removeprefix(f'{path} ')}") from error
    except (OSError, ValueError, SyntaxError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{path.name}: can't be read as an image: {reason}") from error


def _check(path: Path) -> None:
    """Raise if a limit is exceeded, before any pixel is decoded."""
    size = path.stat().st_size
    if size == 0:
        raise FileError("is empty: choose another file")
    if size > MOST_BYTES:
        raise FileError(f"has {size / 2**20:.1f} MB, the limit is {MOST_BYTES // 2**20} MB: make it smaller")
    with Image.open(path, formats=FORMATS) as file:
        pixels = file.width * file.height
        if pixels > MOST_PIXELS:
            raise FileError(f"has {_millions(pixels)} pixels, the limit is {_millions(MOST_PIXELS)}: make it smaller")
        if file.mode not in _MODES and not file.mode.startswith("I;16"):
            raise FileError(f"has pixels of mode {file.mode}, not colours: save it with 8 or 16 bits per channel")


def _millions(pixels: int) -> str:
    return f"{pixels / 1e6:.0f} million"
