"""Evil images: each gives a picture of the right size or a FileError, in `agop explain` and as an upload.

AGOP_HOSTILE_IMAGES sets how many are tried.
"""

import io
import os
import random
import warnings
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from agop.app.uploads import read_upload
from agop.errors import FileError
from agop.pictures.preprocessing import Preprocessing
from tests.mutated_files import mutated_bytes

pytestmark = [pytest.mark.hostile, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
IMAGES = int(os.environ.get("AGOP_HOSTILE_IMAGES", "5000"))
KINDS = ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"]
MODES = ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "F", "I"]
FOREIGN = [
    b"", b"\0", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9999 9999\nshowpage\n", b"<svg/>", b"\x89PNG\r\n\x1a\n",
    b"GIF89a" + b"\xff" * 50, b"BM" + b"\xff" * 60, b"P6\n1000000 1000000\n255\n", b"II*\0" + b"\xff" * 40,
]  # fmt: skip


def evil_image(draw):
    """A foreign file, or an image of some format, mode and shape, most of them with mutated bytes."""
    if draw.random() < 0.05:
        return draw.choice(FOREIGN)
    height, width = draw.choice([(1, 1), (16, 16), (3, 40), (1, 3000), (3000, 1)])
    pixels = np.random.default_rng(draw.randrange(10**6)).integers(0, 255, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    try:
        Image.fromarray(pixels).convert("RGB").convert(draw.choice(MODES)).save(buffer, draw.choice(KINDS))
    except (OSError, ValueError):  # a format that doesn't have this mode
        Image.fromarray(pixels).save(buffer, "PNG")
    content = buffer.getvalue()
    for _ in range(draw.choice([0, 1, 1, 2, 5])):
        content = mutated_bytes(content, draw)
    return content


def outcome(read, path, size):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "read" if read(path).size == size[::-1] else "wrong size"
    except FileError:
        return "rejected"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_evil_images(tmp_path):
    outcomes, leaks = Counter(), {}
    for number in range(IMAGES):
        draw = random.Random(number)
        resize = draw.choice([None, 20, (9, 30)])
        how = Preprocessing((12, 16), gray=draw.random() < 0.5, resize=resize)
        path = tmp_path / f"evil.{draw.choice(['png', 'jpg', 'tif'])}"
        path.write_bytes(evil_image(draw))
        readers = {"command line": how.picture, "upload": lambda path: read_upload(path, how)}  # noqa: B023
        for place, read in readers.items():
            result = outcome(read, path, how.size)
            outcomes[result if result in ("read", "rejected") else "leaked"] += 1
            if result not in ("read", "rejected"):
                leaks[f"{place}, image {number}"] = result
    print(f"\nevil images: {2 * IMAGES} tried, {2 * IMAGES - len(leaks)} held ({dict(outcomes)})")
    assert leaks == {}
