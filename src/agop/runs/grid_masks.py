"""Kinds of masks on 2×2 grids of images. Their scores are of grids, not of the test images."""

from __future__ import annotations

# The cell of the explained class, and the object's pixels in that cell.
CELL, OBJECT = "grid cell", "grid object"
