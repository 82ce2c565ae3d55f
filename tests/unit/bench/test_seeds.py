"""Random numbers of the methods in a bench."""

import itertools

import pytest
import torch

import agop
from agop.bench.entries import Entries
from agop.runs.spec import Cell
from agop.scenarios import Scenario, Split
from tests import zoo

CELLS = [Cell(*parts) for parts in itertools.product(("linear", "xor"), ("plain", "smooth"), (0, 1))]


@pytest.mark.parametrize("name", ["random", "smoothgrad"])
def test_every_cell_has_its_own_random_numbers_and_keeps_them(name):
    images = zoo.images(2)
    split = Split(images, torch.zeros(2, dtype=torch.long), torch.ones(2, 12, 12))
    scenario = Scenario("s", "b", None, None, "layer", ("x",))
    model, priors = zoo.build("plain"), {"training": agop.AGOP(torch.ones(3, 12, 12), 1)}

    def maps(cell):
        entry = Entries(scenario, split, priors, cell).entry(name)
        return agop.explain(model, images, entry.method)

    results = [maps(cell) for cell in CELLS]
    for first, second in itertools.combinations(results, 2):
        assert not torch.allclose(first, second)
    assert all(torch.equal(maps(cell), result) for cell, result in zip(CELLS, results, strict=True))
