"""Light that comes from everywhere: the sky, the floor below and the things around."""

from __future__ import annotations

import numpy as np

from agop.scenarios.clevr.render.solids import Solids
from agop.scenarios.clevr.render.vectors import Floats, Ints, dot

FLOOR_ALBEDO = (0.50, 0.495, 0.49)
_ZENITH, _HORIZON = 0.16, 0.34
# What the lit floor sends up, and a lit thing to its neighbours, for an albedo of 1.
_FLOOR_GLOW, _THING_GLOW = 0.30, 0.35


def environment(direction: Floats) -> Floats:
    """Light (3,N) from far away along unit directions (3,N): dark above, brighter at the horizon, floor below."""
    height = direction[2]
    up = _ZENITH + (_HORIZON - _ZENITH) * (1 - np.maximum(height, 0)) ** 3
    return np.stack([np.where(height < 0, np.float32(_FLOOR_GLOW), up)] * 3)


def ambient(solids: Solids, albedo: Floats, places: Floats, normals: Floats, own: Ints) -> Floats:
    """Light (3,N) from all sides on places (3,N) that face along normals (3,N); albedo (3,K) is the things'."""
    hidden = _hidden(solids, places, normals, own)
    open_share = np.prod(1 - hidden, axis=0)
    upward = 0.5 + 0.5 * normals[2]
    # Just above the floor a thing's own shade keeps the floor from lighting it.
    below = _FLOOR_GLOW * np.minimum(0.35 + 0.9 * places[2], 1)
    around = (upward * 0.5 * (_ZENITH + _HORIZON) + (1 - upward) * below) * open_share
    # What fills nearly everything a place faces stands so close that it lies in shade itself there.
    glow = _THING_GLOW * hidden * (1 - hidden)
    # One channel at a time: things times places times channels would not fit the processor's cache.
    return np.stack([around + (shade[:, None] * glow).sum(axis=0) for shade in albedo])


def _hidden(solids: Solids, places: Floats, normals: Floats, own: Ints) -> Floats:
    """The share (K,N) of what a place faces that each thing fills, as if it were a ball; 0 for the place's own."""
    seen = solids.centres[:, :, None] - places[:, None]
    square = dot(seen, seen)
    radii = solids.radii[:, None]
    share: Floats = np.maximum(dot(seen, normals[:, None]), 0) * radii * radii / (square * np.sqrt(square))
    share[own == np.arange(len(solids.things))[:, None]] = 0
    return np.minimum(share, 0.9)
