"""What must hold for every registered method, also one that was added yesterday."""

import warnings
from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch

import agop
from tests import zoo
from tests.state import assert_same, state_of

METHODS = agop.methods.names()
MODELS = ["plain", "batch norm and dropout", "attention", "one logit"]


@pytest.fixture(autouse=True)
def _coarse_maps_are_fine():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the map of layer")
        yield


def prior() -> agop.AGOP:
    return agop.AGOP(torch.linspace(0.1, 2, 432).double().reshape(3, 12, 12), 7)


def explain(model, images, method, **options):
    return agop.explain(model, images, method, prior(), **options)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_maps_are_finite_non_negative_float32_and_one_an_image(method, kind):
    maps = explain(zoo.build(kind), zoo.images(), method)
    assert maps.shape == (5, 12, 12)
    assert maps.dtype == torch.float32
    assert maps.isfinite().all()
    assert (maps >= 0).all()
    assert not maps.requires_grad


@pytest.mark.parametrize("method", METHODS)
def test_the_same_call_gives_the_same_maps_and_other_draws_do_not_matter(method):
    model, images = zoo.build("batch norm and dropout"), zoo.images()
    first = explain(model, images, method)
    torch.rand(7)
    assert torch.equal(explain(model, images, method), first)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch_size", [1, 2, 3, 64])
def test_the_batch_size_does_not_change_the_maps(method, batch_size):
    model, images = zoo.build("batch norm and dropout"), zoo.images()
    expected = explain(model, images, method)
    torch.testing.assert_close(explain(model, images, method, batch_size=batch_size), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", [name for name in METHODS if agop.methods.get(name).needs_model])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_no_more_than_batch_size_images_are_in_the_model_at_once(method, batch_size):
    """Memory grows neither with the images nor with the steps of a path."""
    model, rows = zoo.build("plain"), []
    model.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    explain(model, zoo.images(10), method, batch_size=batch_size)
    assert 0 < max(rows) <= batch_size


@pytest.mark.parametrize("method", [name for name in METHODS if name != "random"])
def test_an_image_s_map_does_not_depend_on_the_images_around_it(method):
    model, images = zoo.build("batch norm and dropout"), zoo.images()
    order = torch.tensor([3, 1, 4, 0, 2])
    shuffled = explain(model, images[order], method)
    torch.testing.assert_close(shuffled, explain(model, images, method)[order], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_one_target_explains_every_image_of_a_batch(method):
    model, images = zoo.build("plain"), zoo.images()
    maps = explain(model, images, method, target=1)
    assert (maps.flatten(1).sum(1) > 0).sum() >= 4


@pytest.mark.parametrize("method", METHODS)
def test_it_leaves_the_model_alone(method):
    model = zoo.build("batch norm and dropout").train()
    before = state_of(model)
    with torch.inference_mode():
        explain(model, zoo.images(), method)
    assert_same(before, state_of(model))


@pytest.mark.parametrize("method", METHODS)
def test_it_is_a_frozen_dataclass_with_defaults_and_a_docstring(method):
    made = agop.methods.get(method)()
    assert made.__doc__
    assert replace(made) == made
    for field in fields(made):
        with pytest.raises(FrozenInstanceError):
            setattr(made, field.name, 1)
    assert getattr(agop.methods, type(made).__name__) is type(made)
