"""Digits in Pillow's built-in font: a stand-in for handwritten ones."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

# MNIST's size. Glyphs are drawn larger, then reduced, so that their edges are smooth.
_SIZE, _ENLARGED = 28, 4
_FONT_SIZE = 80
_MOST_ROTATION, _MOST_SHEAR, _MOST_STROKE = math.radians(20), 0.25, 4


def drawn_digits(count: int, random: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (count,28,28) of digits, white on black, and labels (count,), as many of each digit.

    Each is rotated, sheared and of a random weight, so that no two are alike.
    """
    labels = np.arange(count) % 10
    glyphs = {(digit, stroke): _glyph(digit, stroke) for digit in range(10) for stroke in range(_MOST_STROKE + 1)}
    strokes = random.integers(0, _MOST_STROKE + 1, count)
    angles = random.uniform(-_MOST_ROTATION, _MOST_ROTATION, count)
    shears = random.uniform(-_MOST_SHEAR, _MOST_SHEAR, count)
    images = [
        _transformed(glyphs[int(label), int(stroke)], angle, shear)
        for label, stroke, angle, shear in zip(labels, strokes, angles, shears, strict=True)
    ]
    return np.stack(images), labels.astype(np.uint8)


def _glyph(digit: int, stroke: int) -> Image.Image:
    """One digit, large and centred."""
    side = _SIZE * _ENLARGED
    image = Image.new("L", (side, side))
    font = ImageFont.load_default(size=_FONT_SIZE)
    draw = ImageDraw.Draw(image)
    left, top, right, bottom = draw.textbbox((0, 0), str(digit), font=font, stroke_width=stroke)
    corner = ((side - left - right) / 2, (side - top - bottom) / 2)
    draw.text(corner, str(digit), fill=255, font=font, stroke_width=stroke)
    return image


def _transformed(glyph: Image.Image, angle: float, shear: float) -> NDArray[np.uint8]:
    """The glyph (28,28), rotated and sheared around its centre."""
    cosine, sine, centre = math.cos(angle), math.sin(angle), glyph.width / 2
    a, b, c, d = cosine, shear * cosine - sine, sine, shear * sine + cosine
    matrix = (a, b, centre - (a + b) * centre, c, d, centre - (c + d) * centre)
    turned = glyph.transform(glyph.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
    return np.asarray(turned.reduce(_ENLARGED))
