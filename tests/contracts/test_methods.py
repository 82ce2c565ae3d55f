"""Properties of every registered method. A new method is tested without an edit here."""

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
def _ignore_coarse_maps():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the map of layer")
        yield


def prior() -> agop.AGOP:
    return agop.AGOP(torch.linspace(0.1, 2, 432).double().reshape(3, 12, 12), 7)


def explain(model, images, method, **options):
    return agop.explain(model, images, method, prior(), **options)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_maps_are_finite_non_negative_float32_and_one_per_image(method, kind):
    maps = explain(zoo.build(kind), zoo.images(), method)
    assert maps.shape == (5, 12, 12)
    assert maps.dtype == torch.float32
    assert maps.isfinite().all()
    assert (maps >= 0).all()
    assert not maps.requires_grad


@pytest.mark.parametrize("method", METHODS)
def test_maps_are_reproducible_and_independent_of_the_global_random_state(method):
    model, images = zoo.build("batch norm and dropout"), zoo.images()
    first = explain(model, images, method)
    torch.rand(7)
    assert torch.equal(explain(model, images, method), first)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch_size", [1, 2, 3, 64])
def test_batch_size_does_not_change_the_maps(method, batch_size):
    model, images = zoo.build("batch norm and dropout"), zoo.images()
    expected = explain(model, images, method)
    torch.testing.assert_close(explain(model, images, method, batch_size=batch_size), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", [name for name in METHODS if agop.methods.get(name).needs_model])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_at_most_batch_size_images_are_in_the_model_at_once(method, batch_size):
    model, rows = zoo.build("plain"), []
    model.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    explain(model, zoo.images(10), method, batch_size=batch_size)
    assert 0 < max(rows) <= batch_size


@pytest.mark.parametrize("method", [name for name in METHODS if name != "random"])
def test_map_does_not_depend_on_the_other_images_of_the_batch(method):
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
def test_model_is_unchanged(method):
    model = zoo.build("batch norm and dropout").train()
    before = state_of(model)
    with torch.inference_mode():
        explain(model, zoo.images(), method)
    assert_same(before, state_of(model))


@pytest.mark.parametrize("method", METHODS)
def test_method_is_a_frozen_dataclass_with_defaults_and_a_docstring(method):
    instance = agop.methods.get(method)()
    assert instance.__doc__
    assert replace(instance) == instance
    for field in fields(instance):
        with pytest.raises(FrozenInstanceError):
            setattr(instance, field.name, 1)
    assert getattr(agop.methods, type(instance).__name__) is type(instance)
