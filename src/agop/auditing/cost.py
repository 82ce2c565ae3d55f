"""The cost of an audit, before its work starts."""

from __future__ import annotations

from collections.abc import Sequence

from agop.auditing.examining import Subject
from agop.auditing.places import squares
from agop.auditing.pool import Pool
from agop.auditing.selecting import default_count

# Images in the model per class: per window of the scan, and for screening, refining and testing what has an effect.
_PER_WINDOW, _PER_CLASS = 40, 6_000
# A gradient costs about as much as three forward passes: half of the images have one for the prior, one for the map.
_PER_IMAGE = 1 + 3
# Images in the model for each one whose maps are compared.
_PER_MAP = 400
# Seconds per class besides the model: statistics of images and of groups.
_SECONDS_PER_CLASS = 1.5


def forward_passes(pool: Pool) -> int:
    """About how many images go through the model."""
    size = (pool.images.shape[2], pool.images.shape[3])
    search = len(pool.audited) * (_PER_WINDOW * len(squares(size)) + _PER_CLASS)
    return search + _PER_IMAGE * len(pool.labels) + _PER_MAP * default_count(pool.images)


def cost_in_words(pool: Pool, subjects: Sequence[Subject]) -> str:
    """Classes, images, forward passes and time of auditing these models."""
    passes = forward_passes(pool)
    height, width = pool.images.shape[2:]
    size = f"{height} px" if height == width else f"{height}×{width} px"
    seconds = sum(passes * subject.seconds + _SECONDS_PER_CLASS * len(pool.audited) for subject in subjects)
    rounded = float(f"{passes * len(subjects):.2g}")
    return (
        f"{len(pool.audited)} classes, {len(pool.labels):,} images at {size}: about {rounded:,.0f} forward passes, "
        f"about {_duration(seconds)}"
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
