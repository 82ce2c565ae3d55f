"""Image files for a test."""

import zlib

import numpy as np
from PIL import Image

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"


def save(path, pixels):
    """Save pixels (H,W) or (H,W,3) as an image of 8 bits. Creates the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels).clip(0, 255).astype(np.uint8)).save(path)


def save_random(folder, *names, shape=(8, 8)):
    """Save random images with these names."""
    draw = np.random.default_rng(0)
    for name in names:
        save(folder / name, draw.integers(0, 255, shape))


def png_header(width, height):
    """A PNG file that claims this size and has almost no data: decoding it raises another error."""

    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 0, 0, 0, 0])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")
