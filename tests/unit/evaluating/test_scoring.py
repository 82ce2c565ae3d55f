"""The scoring loop with several kinds of masks."""

import torch

from agop import methods, metrics
from agop.evaluating.scoring import Entry, score
from tests import zoo


def test_metrics_of_the_model_are_scored_once_and_others_per_kind_of_mask():
    model, images = zoo.build("plain"), zoo.images(4)
    masks = {"all": torch.ones(4, 12, 12, dtype=torch.bool), "none": torch.zeros(4, 12, 12, dtype=torch.bool)}
    both = [metrics.get("energy"), metrics.get("deletion")]
    (result,) = score(model, images, masks, [("mine", Entry(methods.create("vanilla")))], both, [0, 3], steps=4)
    assert {kind: list(scores) for kind, scores in result.scores.items()} == {
        "all": ["energy", "deletion"], "none": ["energy"],
    }  # fmt: skip
    assert result.method == "mine"
    assert result.undefined["all"] == [None] * 4
    assert result.undefined["none"] == ["mask is empty"] * 4
    assert result.maps.shape == (2, 12, 12)
