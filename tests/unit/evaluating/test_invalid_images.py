"""Images with NaN in an evaluation."""

import pytest
import torch

import agop
from agop.errors import AGOPWarning
from tests import zoo


def test_image_with_nan_is_undefined_and_the_others_are_scored():
    model, images, masks = zoo.build("plain").eval(), zoo.images(4), torch.zeros(4, 12, 12, dtype=torch.bool)
    masks[:, 3:6, 3:6] = True
    methods = ["vanilla", "smoothgrad"]
    expected = agop.evaluate(model, images[1:], masks[1:], methods=methods)
    broken = images.clone()
    broken[0, 0, 0, 0] = torch.nan
    with pytest.warns(AGOPWarning, match="sample 0"):
        table = agop.evaluate(model, broken, masks, methods=methods, controls=False)
    for name in methods:
        for metric, scores in table.scores[name].items():
            assert scores[0].isnan(), (name, metric)
            torch.testing.assert_close(scores[1:], expected.scores[name][metric])
    rows = [row for row in table.rows() if row["metric"] == "energy"]
    assert all(row["n"] == 3 and list(row["undefined"].values()) == [1] for row in rows)
