"""Where reference images come from: the call, the prior's images, the prior's moments, or nowhere."""

from dataclasses import replace

import pytest
import torch

import agop
from agop.errors import InputError, PriorError
from agop.explaining.references import references_for
from tests import zoo

IMAGES = zoo.images(20)


@pytest.fixture(scope="module")
def prior():
    return agop.fit(zoo.build("plain"), [IMAGES], False, progress=False, references=6)


def without_images(prior):
    return replace(prior, references=None)


def test_given_references_come_first_and_are_checked(prior):
    assert torch.equal(references_for("m", IMAGES[:3], prior, IMAGES), IMAGES[:3])
    with pytest.raises(InputError, match="references have shape"):
        references_for("m", IMAGES[:, :1], prior, IMAGES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_then_the_images_of_the_prior(prior, dtype):
    references = references_for("m", None, prior, IMAGES.to(dtype))
    assert references.dtype == dtype
    assert torch.equal(references, prior.references.to(dtype))
    assert all(any(torch.equal(reference.float(), image) for image in IMAGES) for reference in references)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_then_images_drawn_from_its_moments_the_same_at_every_call(prior, dtype):
    moments_only = without_images(prior)
    before = torch.get_rng_state()
    references = references_for("m", None, moments_only, IMAGES.to(dtype))
    assert torch.equal(torch.get_rng_state(), before)
    assert references.dtype == dtype
    assert references.shape == (200, 3, 12, 12)
    assert torch.equal(references, references_for("other", None, moments_only, IMAGES[:1].to(dtype)))
    mean, deviation = prior.image_moments.to(dtype)
    noise = (references - mean) / deviation
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 1) < 0.02
    assert noise.mean(0).abs().max() < 0.4  # a mean of 200 draws has standard deviation 0.07


def test_else_an_error_names_the_three_ways(prior):
    old = replace(prior, references=None, image_moments=None)
    assert not old.has_references
    for source in (None, old):
        with pytest.raises(
            InputError,
            match=r"m needs reference images: pass references=.*--references FOLDER.*agop\.fit of this version.*"
            r"`agop fit --references 64`",
        ):
            references_for("m", None, source, IMAGES)
    with pytest.raises(PriorError, match=r"for images of shape \(3, 12, 12\), these have shape \(3, 9, 9\)"):
        references_for("m", None, prior, torch.zeros(2, 3, 9, 9))


@pytest.mark.parametrize("method", ["expected-gradients:samples=3", "agop-expected:samples=3"])
def test_explain_with_the_prior_alone_equals_explain_with_its_references(prior, method):
    model, images = zoo.build("plain"), zoo.images(3, seed=1)
    for each in (prior, without_images(prior)):
        references = references_for(method, None, each, images)
        maps = agop.explain(model, images, method, each)
        assert maps.any()
        assert torch.equal(maps, agop.explain(model, images, method, each, references=references))
    assert not torch.equal(maps, agop.explain(model, images, method, prior))
    with pytest.raises(PriorError, match="prior is a str"):
        agop.explain(model, images, method, "prior.safetensors")


def test_methods_with_references_are_runnable_with_such_a_prior(prior):
    names = {"expected-gradients", "agop-expected"}
    old = replace(prior, references=None, image_moments=None)
    for each in (prior, without_images(prior), replace(prior, image_moments=None)):
        assert names <= set(agop.methods.runnable(each))
    assert not names & set(agop.methods.runnable(old))
    assert names <= set(agop.methods.runnable(old, with_references=True))
    assert "expected-gradients" in agop.methods.runnable(None, with_references=True)
    assert not names & set(agop.methods.runnable(None))
    assert agop.methods.lacking("expected-gradients", old) == "the prior has no image moments"
    assert agop.methods.lacking("expected-gradients", old, with_references=True) is None
