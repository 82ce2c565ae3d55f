"""Image files for a test."""

import gzip
import struct
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


def idx(array):
    """Content of an idx file of unsigned bytes."""
    return struct.pack(f">I{array.ndim}I", 0x800 | array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write_digits(folder, count=4, prefix="train", pack=False):
    """Write random digits and labels as idx files, packed or not. Returns both."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(count)
    images, labels = random.integers(0, 256, (count, 6, 5)), random.integers(0, 10, count)
    for name, array in ((f"{prefix}-images-idx3-ubyte", images), (f"{prefix}-labels-idx1-ubyte", labels)):
        content = idx(array)
        (folder / (name + ".gz" * pack)).write_bytes(gzip.compress(content) if pack else content)
    return images, labels
