"""Files that people drop on the page: pictures of a sensible size, or a plain line that says why not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from agop.errors import FileError
from agop.pictures.preprocessing import Preprocessing

MOST_BYTES = 20 * 2**20
# Gradio refuses a whole drop for one file above its limit; below it, one is left out here by its name.
MOST_SENT_BYTES = 5 * MOST_BYTES
MOST_PIXELS = 50_000_000
MOST_FILES = 50
# Only formats that Pillow decodes by itself: PostScript, for one, would start another program.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_COLOURS = {"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "LAB", "HSV"}


def prepared(path: Path, preprocessing: Preprocessing) -> Image.Image:
    """The picture of an uploaded file in the model's form; a file that cannot be one is told by its name alone."""
    with _plainly(path), warnings.catch_warnings():
        _check(path)
        warnings.simplefilter("ignore")  # Pillow's, about strange metadata of pictures that it can read
        return preprocessing.picture(path)


def _check(path: Path) -> None:
    """Raise, before a pixel is decoded, if the picture should not be read at all."""
    size = path.stat().st_size
    if size == 0:
        raise FileError("it is empty: choose another file")
    if size > MOST_BYTES:
        raise FileError(f"it has {size / 2**20:.1f} MB, the most is {MOST_BYTES // 2**20} MB: make it smaller")
    with _bombs_are_errors(), Image.open(path, formats=FORMATS) as file:
        pixels = file.width * file.height
        if pixels > MOST_PIXELS:
            raise FileError(f"it has {_millions(pixels)} pixels, the most is {_millions(MOST_PIXELS)}: make it smaller")
        if file.mode not in _COLOURS and not file.mode.startswith("I;16"):
            raise FileError(f"it holds numbers of kind {file.mode}, not colours: save it with 8 or 16 bits a channel")


@contextmanager
def _bombs_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


@contextmanager
def _plainly(path: Path) -> Iterator[None]:
    """Whatever Pillow raises as a FileError with the file's name, not its place on this machine."""
    try:
        yield
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise FileError(f"{path.name}: it has more than {_millions(MOST_PIXELS)} pixels: make it smaller") from error
    except UnidentifiedImageError as error:
        raise FileError(f"{path.name}: it is not a picture ({', '.join(FORMATS)})") from error
    except FileError as error:
        raise FileError(f"{path.name}: {str(error).replace(str(path), 'it')}") from error
    except (OSError, ValueError, SyntaxError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{path.name}: it cannot be read as a picture: {reason}") from error


def _millions(pixels: int) -> str:
    return f"{pixels / 1e6:.0f} million"
