"""Properties of every registered method. A new method is tested without an edit here."""

from dataclasses import FrozenInstanceError, fields, replace
from weakref import WeakKeyDictionary

import pytest
import torch
from torch import nn

import agop
from tests import zoo

METHODS = agop.methods.names()
MODELS = {kind: zoo.build(kind) for kind in ("plain", "batch norm and dropout", "attention", "one logit")}
MODELS["bfloat16"] = zoo.build("plain").bfloat16()


pytestmark = pytest.mark.filterwarnings("ignore:the map of layer")
PRIORS: WeakKeyDictionary[nn.Module, agop.AGOP] = WeakKeyDictionary()


def prior(model) -> agop.AGOP:
    """A prior with all optional parts, computed once per model."""
    if model not in PRIORS:
        PRIORS[model] = agop.fit(model, [zoo.images(7, seed=3)], only_correct=False, progress=False, rank=3)
    return PRIORS[model]


def explain(model, images, method, **options):
    return agop.explain(model, images, method, prior(model), references=zoo.images(4, seed=2), **options)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_maps_are_finite_non_negative_float32_and_one_per_image(method, kind):
    maps = explain(MODELS[kind], zoo.images(), method)
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
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_batch_size_bounds_the_passes_and_does_not_change_the_maps(method, batch_size):
    model, images, rows = zoo.build("batch norm and dropout"), zoo.images(10), []
    expected = explain(model, images, method)
    model.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    maps = explain(model, images, method, batch_size=batch_size)
    torch.testing.assert_close(maps, expected, rtol=1e-4, atol=1e-6)
    assert max(rows, default=0) <= batch_size
    assert bool(rows) == agop.methods.get(method).needs_model


@pytest.mark.parametrize("method", [name for name in METHODS if name != "random"])
def test_map_does_not_depend_on_the_other_images_of_the_batch(method):
    model, images = zoo.build("batch norm and dropout"), zoo.images()
    order = torch.tensor([3, 1, 4, 0, 2])
    shuffled = explain(model, images[order], method)
    torch.testing.assert_close(shuffled, explain(model, images, method)[order], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_method_is_a_frozen_dataclass_with_defaults_and_a_docstring(method):
    instance = agop.methods.get(method)()
    assert instance.__doc__
    assert replace(instance) == instance
    for field in fields(instance):
        with pytest.raises(FrozenInstanceError):
            setattr(instance, field.name, 1)
    assert getattr(agop.methods, type(instance).__name__) is type(instance)
