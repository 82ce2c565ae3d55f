import numpy as np
import pytest
import torch
from torch import nn

import agop
from agop.errors import InputError, LayerError, PriorError
from tests import zoo
from tests.drawn_figures import pixels


def fitted(model, shape=(3, 12, 12), **options):
    return agop.fit(model, [zoo.images(9, shape=shape)], only_correct=False, progress=False, rank=5, **options)


def drawn(vector):
    """The picture of a signed vector (C,H,W), its largest absolute value bright."""
    extreme = vector.flatten()[vector.abs().argmax()]
    return (255 * (0.5 + 0.5 * vector / extreme)).round().movedim(0, -1).numpy()


def test_filters_are_the_eigenvectors_of_the_agop_of_patches():
    model = zoo.build("plain")
    prior = fitted(model)
    weight = model.body[0].weight.detach().double().flatten(1)
    values, vectors = torch.linalg.eigh(weight.T @ prior.patch_matrix @ weight)
    figure = agop.plot.filters(prior, model, count=3)
    assert [axes.get_title() for axes in figure.axes] == [
        f"{100 * float(value / values.sum()):.0f} %" for value in values.flip(0)[:3]
    ]
    for axes, vector in zip(figure.axes, vectors.T.flip(0), strict=False):
        assert np.abs(pixels(axes).astype(float) - drawn(vector.reshape(3, 3, 3))).max() <= 1


def test_filters_of_a_prepared_model_and_of_groups_are_those_of_the_model():
    grouped = nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.ReLU(), nn.Flatten(), nn.Linear(600, 3))
    assert len(agop.plot.filters(fitted(grouped), grouped, count=100).axes) == 6
    model = zoo.build("batch norm and dropout")
    prior = fitted(model)
    first, second = (agop.plot.filters(prior, each, count=2) for each in (model, agop.prepare(model)))
    for axes, other in zip(first.axes, second.axes, strict=True):
        assert np.abs(pixels(axes).astype(float) - pixels(other)).max() <= 1


def test_eigenimages_are_the_eigenvectors_of_the_sketch():
    prior = fitted(agop.networks.CNN8by8(), (1, 8, 8))
    rows = prior.sketch.double().flatten(1)
    values, vectors = torch.linalg.eigh(rows.T @ rows / prior.count)
    figure = agop.plot.eigenimages(prior, count=2)
    shares = values.flip(0) / prior.diagonal.sum()
    assert [axes.get_title() for axes in figure.axes] == [f"{100 * float(share):.2g} %" for share in shares[:2]]
    picture = drawn(vectors[:, -1].reshape(1, 8, 8))
    assert np.abs(pixels(figure.axes[0]).astype(float) - picture).max() <= 1


def test_missing_parts_raise():
    model = zoo.build("plain")
    bare = agop.fit(model, [zoo.images()], only_correct=False, progress=False, patches=False)
    with pytest.raises(PriorError, match="no patch matrix: make one"):
        agop.plot.filters(bare, model)
    with pytest.raises(PriorError, match="no sketch: make one"):
        agop.plot.eigenimages(bare)
    with pytest.raises(InputError, match="count is 0"):
        agop.plot.filters(fitted(model), model, count=0)
    attention = zoo.build("attention")
    with pytest.raises(LayerError, match="is a LayerNorm"):
        agop.plot.filters(fitted(attention, layer="block.norm1"), attention)
