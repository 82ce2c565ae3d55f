"""Refine a region: the smallest box whose transplant has nearly the whole effect."""

from __future__ import annotations

from dataclasses import replace

from agop.auditing.predictor import Pairs, Predictor, change
from agop.auditing.regions import Box
from agop.interventions.transplant import Transplant

# A side is moved outwards if that adds this share to the effect, and inwards while this share of the effect remains.
_ADDED, _KEPT = 0.08, 0.9
_MOST_STEPS = 24


def refined(predictor: Predictor, pairs: Pairs, box: Box, size: tuple[int, int], most_pixels: int) -> Box:
    """The box with its sides moved outwards while the effect grows, up to `most_pixels`, then inwards while it stays.

    Any box grows into evidence of an ordinary kind, so the limit keeps its size comparable to that of the controls. The
    effect is that on the log-odds: the probability is near 1 as soon as a part of the pattern suffices.
    """
    step = max(1, min(size) // 32)

    def strongest(boxes: list[Box]) -> tuple[float, Box]:
        swaps = [(change(predictor, pairs, Transplant(other.region(size))), other) for other in boxes]
        changes = [(float(changed.log_odds.mean()), other) for changed, other in swaps]
        return max(changes, key=lambda pair: pair[0], default=(-1.0, box))

    best, _ = strongest([box])
    for _ in range(_MOST_STEPS):
        grown = [other for other in _moved_sides(box, step, size) if other.height * other.width <= most_pixels]
        value, candidate = strongest(grown)
        if value < (1 + _ADDED) * best:
            break
        best, box = value, candidate
    for _ in range(2 * _MOST_STEPS):
        value, candidate = strongest(_moved_sides(box, -step, size))
        if value < _KEPT * best:
            break
        box = candidate
    return box


def _moved_sides(box: Box, step: int, size: tuple[int, int]) -> list[Box]:
    """Boxes with one side moved outwards by `step`, or inwards if it is negative, within the image."""
    moved = [
        replace(box, top=max(0, box.top - step)),
        replace(box, left=max(0, box.left - step)),
        replace(box, bottom=min(size[0], box.bottom + step)),
        replace(box, right=min(size[1], box.right + step)),
    ]
    return [other for other in moved if other != box and min(other.height, other.width) > 1]
