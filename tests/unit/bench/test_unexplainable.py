"""Cells of networks that some methods can't explain."""

import json

import pytest
import torch

from agop.bench.cell import run_cells
from agop.networks import CNN8by8
from agop.runs.spec import RunSpec
from agop.scenarios import Recipe, Scenario, Split, register
from agop.scenarios.base import registry


def dead_network():
    """A network whose last activations are all zero: its logits are the same for every image."""
    model = CNN8by8()
    for name, parameter in model.named_parameters():
        if name.startswith("conv"):
            torch.nn.init.constant_(parameter, -1.0 if name.endswith("bias") else 0.0)
    return model


@pytest.fixture
def dead_scenario():
    def splits(background, seed, masks):
        labels = torch.arange(60) % 2
        images = torch.randn(60, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
        masks = torch.zeros(60, 8, 8, dtype=torch.bool)
        masks[:, :2, :2] = True
        return tuple(Split(images[part::3], labels[part::3], masks[part::3]) for part in range(3))

    recipe = Recipe(epochs=2, batch=20, snapshot_every=1)
    yield register(Scenario("dead", "test", splits, dead_network, "conv3", ("plain",), recipe=recipe, learned=0.9))
    registry._plugins.pop("dead")


def test_a_network_that_ignores_its_input_is_reported_as_not_learned(dead_scenario, tmp_path):
    methods = ("vanilla", "gradcam", "agop-global", "agop-weighted")
    spec = RunSpec("test", ("dead",), ("plain",), 1, methods, ("iou", "deletion"), epochs=2, restarts=1)
    run_cells(spec, spec.cells(), tmp_path, lambda fraction: None)
    folder = tmp_path / "cells" / "dead-plain-000"
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    values = {(row["method"], row["metric"]): row for row in rows}
    assert values["model", "learned"]["value"] == 0
    assert values["model", "attempts"]["value"] == 2
    for method in ("agop-global", "agop-weighted"):
        assert values[method, "iou"]["value"] is None
        assert "diag(M) is zero" in next(iter(values[method, "iou"]["undefined"]))
    steps = [json.loads(line) for line in (folder / "convergence.jsonl").read_text().splitlines()]
    assert {row["method"] for row in steps} == {"model"}
