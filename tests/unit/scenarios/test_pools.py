"""Items of a pool are shared out among the splits."""

import numpy as np
import pytest

from agop.errors import InputError
from agop.scenarios.pools import shared_out

PARTS = np.split(np.random.default_rng(1).permutation(200), [160, 180])


@pytest.mark.parametrize("pool", [10, 40, 199, 1000])
def test_no_item_is_in_two_parts_and_repeats_are_even(pool):
    chosen = shared_out(pool, PARTS, np.random.default_rng(0))
    assert 0 <= chosen.min() <= chosen.max() < pool
    items = [set(chosen[part]) for part in PARTS]
    assert sum(map(len, items)) == len(set.union(*items))
    for part in PARTS:
        _, counts = np.unique(chosen[part], return_counts=True)
        assert counts.max() - counts.min() <= 1
    if pool >= 1000:
        assert len(set(chosen)) == 200


def test_too_few_items_raise():
    with pytest.raises(InputError, match="photographs or digits: 9, too few"):
        shared_out(9, PARTS, np.random.default_rng(0))
