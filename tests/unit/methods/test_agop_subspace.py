import pytest
import torch

import agop
from agop.errors import PriorError
from tests import zoo


@pytest.mark.parametrize("kind", ["plain", "attention"])
@pytest.mark.parametrize("scale", [1.0, 1e-12])
def test_map_is_the_dense_approximation_of_m_times_the_gradient(kind, scale):
    model, images = zoo.build(kind), zoo.images(9)
    head = model.body[-1] if kind == "plain" else model.head
    with torch.no_grad():
        head.weight *= scale
    prior = agop.fit(model, [images], only_correct=False, progress=False, rank=4)
    rows = prior.sketch.double().flatten(1)
    dense = rows.T @ rows / prior.count + torch.diag(prior.residual.flatten())
    gradients = agop.input_gradients(model, images).values.double()
    expected = (gradients.flatten(1) @ dense).reshape(gradients.shape).abs().sum(1)
    maps = agop.explain(model, images, "agop-subspace", prior)
    torch.testing.assert_close((maps / maps.max()).double(), expected / expected.max(), rtol=1e-3, atol=1e-5)


def test_a_prior_without_a_sketch_raises():
    model, images = zoo.build("plain"), zoo.images()
    prior = agop.fit(model, [images], only_correct=False, progress=False)
    with pytest.raises(PriorError, match=r"no sketch: make one with agop.fit\(model, loader, rank=64\)"):
        agop.explain(model, images, "agop-subspace", prior)
