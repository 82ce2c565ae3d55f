"""The speed benchmarks, on networks that are small enough for a test."""

from pathlib import Path

import pytest
import torch

import agop

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the map of layer")
def test_every_method_has_a_cost(monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(BENCHMARKS)
    import large_speed

    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=32, patch_size=4
    )
    network = transformers.ViTForImageClassification(config).eval()
    costs = large_speed.method_costs("a small ViT", network, torch.randn(1, 3, 32, 32))
    assert [cost.method.split(",")[0] for cost in costs] == agop.methods.names()
    assert all(cost.passes > 0 for cost in costs)
