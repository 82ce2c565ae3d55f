"""Controls: maps that don't depend on the model."""

import torch

import agop
from agop.evaluating.controls import FIXED_MAPS, centre, mean_mask
from agop.methods import Job
from agop.runs.controls import AGOP_CONTROLS, CONTROLS, is_control


def test_fixed_maps_are_controls_and_do_not_depend_on_the_image():
    assert set(CONTROLS) - set(agop.methods.names()) - set(AGOP_CONTROLS) == set(FIXED_MAPS)
    assert [is_control(name) for name in ("random:seed=3", "mean-mask", "smoothgrad:seed=3")] == [True, True, False]
    masks = torch.zeros(4, 6, 8, dtype=torch.bool)
    masks[:2, 1, 1] = True
    job = Job(torch.randn(3, 3, 6, 8), None, 3)
    maps = mean_mask(masks).maps(job)
    assert maps.shape == (3, 6, 8)
    assert maps[2, 1, 1] == 0.5
    assert maps.sum() == 1.5
    blob = centre(masks).maps(job)
    torch.testing.assert_close(blob, blob.flip(1).flip(2))
    assert blob[0].argmax() in (2 * 8 + 3, 2 * 8 + 4, 3 * 8 + 3, 3 * 8 + 4)
    assert blob[0, 0, 0] < 1.001 * blob.min() < 0.3 * blob.max()
