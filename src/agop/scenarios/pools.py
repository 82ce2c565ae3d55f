"""Photographs and digits are shared out among the splits, so that none is in two of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agop.errors import InputError

Indices = NDArray[np.int64]
# With fewer, a split of a tenth could have none.
FEWEST = 10


def shared_out(pool: int, parts: Sequence[Indices], random: np.random.Generator) -> Indices:
    """An item of the pool (N,) for each sample; no item is in two parts.

    `parts` are the samples of each split. A part gets a share of the pool in proportion to its size, and uses an item
    again only after all items of its share.
    """
    if pool < FEWEST:
        raise InputError(f"photographs or digits: {pool}, too few for three splits: use {FEWEST} or more")
    sizes = np.array([len(part) for part in parts])
    ends = (pool * sizes.cumsum() / sizes.sum()).round().astype(int)
    shares = np.split(random.permutation(pool), ends[:-1])
    chosen = np.empty(sizes.sum(), np.int64)
    for part, share in zip(parts, shares, strict=True):
        chosen[part] = np.resize(share, len(part))
    return chosen
