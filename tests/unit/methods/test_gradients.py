"""Expected Gradients and AGOP-Expected against loops over images and draws, and where their references come from."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import agop
from agop.errors import InputError, PriorError
from tests import zoo

REFERENCES = zoo.images(7, seed=5)


def prior() -> agop.AGOP:
    return agop.AGOP(torch.linspace(0.1, 2, 432).double().reshape(3, 12, 12), 7)


def terms(model, image, target, samples, seed):
    """The terms (samples,C,H,W) of one image, one draw at a time."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(REFERENCES), (samples,), generator=generator)
    shares = torch.rand(samples, generator=generator)
    values = []
    for number, share in zip(drawn, shares, strict=True):
        start = REFERENCES[number]
        point = (start + share * (image - start)).requires_grad_()
        (gradient,) = torch.autograd.grad(model(point[None])[0, target], point)
        values.append((image - start) * gradient)
    return torch.stack(values)


@pytest.mark.parametrize("batch_size", [None, 1, 4])
def test_maps_equal_a_loop_over_images_and_draws(batch_size):
    model, images = zoo.build("plain").eval(), zoo.images()
    every = [terms(model, image, int(model(image[None]).argmax()), samples=6, seed=3) for image in images]
    plain = torch.stack([values.mean(0).abs().sum(0) for values in every])
    weighted = torch.stack([(values.abs().mean(0) * prior().weights.float()).sum(0) for values in every])
    options = {"references": REFERENCES, "batch_size": batch_size}
    maps = agop.explain(model, images, "expected-gradients:samples=6,seed=3", **options)
    torch.testing.assert_close(maps, plain, rtol=1e-4, atol=1e-6)
    maps = agop.explain(model, images, "agop-expected:samples=6,seed=3", prior(), **options)
    torch.testing.assert_close(maps, weighted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["expected-gradients", "agop-expected"])
@pytest.mark.parametrize(
    ("references", "message"),
    [
        (None, r"needs reference images: pass references=.* --references FOLDER"),
        ([1, 2], "references are a list"),
        (torch.zeros(4, 3, 8, 8), r"\(4, 3, 8, 8\), images \(5, 3, 12, 12\): give \(M, 3, 12, 12\)"),
        (torch.zeros(0, 3, 12, 12), r"references have shape \(0, 3, 12, 12\)"),
        (torch.zeros(3, 12, 12), r"references have shape \(3, 12, 12\)"),
        (torch.zeros(4, 3, 12, 12, dtype=torch.uint8), r"references are torch.uint8, images torch.float32"),
        (torch.full((1, 3, 12, 12), torch.inf), "references contain NaN or infinite values"),
        (255 * torch.ones(1, 3, 12, 12), r"references have values up to 255, images up to \d.*: convert and scale"),
    ],
)
def test_invalid_references_raise(method, references, message):
    with pytest.raises(InputError, match=message):
        agop.explain(zoo.build("plain"), zoo.images(), method, prior(), references=references)


@pytest.fixture(scope="module")
def fitted():
    return agop.fit(zoo.build("plain"), [zoo.images(20)], False, progress=False)


def test_references_of_a_prior_are_drawn_from_its_moments_the_same_at_every_call(fitted):
    before = torch.get_rng_state()
    references = fitted.reference_images
    assert torch.equal(torch.get_rng_state(), before)
    assert references.shape == (200, 3, 12, 12)
    assert torch.equal(references, fitted.reference_images)
    mean, deviation = fitted.image_moments
    noise = (references - mean) / deviation
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 1) < 0.02
    assert noise.mean(0).abs().max() < 0.4  # a mean of 200 draws has standard deviation 0.07


@pytest.mark.parametrize("method", ["expected-gradients:samples=3", "agop-expected:samples=3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_explain_with_the_prior_alone_equals_explain_with_its_references(fitted, method, dtype):
    model, images = zoo.build("plain").to(dtype), zoo.images(3, seed=1).to(dtype)
    maps = agop.explain(model, images, method, fitted)
    assert maps.any()
    references = fitted.reference_images.to(dtype)
    assert torch.equal(maps, agop.explain(model, images, method, fitted, references=references))
    for prior, error, message in (
        ("prior.safetensors", PriorError, "prior is a str"),
        (replace(fitted, image_moments=None), InputError, "needs reference images: .*a prior with image moments"),
    ):
        with pytest.raises(error, match=message):
            agop.explain(model, images, method, prior)
    with pytest.raises(PriorError, match=r"for images of shape \(3, 12, 12\), these have shape \(3, 9, 9\)"):
        agop.explain(model, images[..., :9, :9], method, fitted)


def test_methods_are_runnable_with_a_prior_that_has_what_they_need(fitted):
    whole, names = replace(fitted, sketch=torch.ones(2, 3, 12, 12)), {"expected-gradients", "agop-expected"}
    for part, needed, lack in (
        ("image_moments", names | {"agop"}, "image moments"), ("sketch", {"agop-subspace", "agop-ixg"}, "sketch"),
        ("patch_matrix", {"agop-patch"}, "patch matrix"),
    ):  # fmt: skip
        without = replace(whole, **{part: None})
        assert set(agop.methods.runnable(whole)) - set(agop.methods.runnable(without)) == needed
        assert {agop.methods.lacking(name, without) for name in needed} == {f"the prior has no {lack}"}
    assert names <= set(agop.methods.runnable(replace(whole, image_moments=None), with_references=True))
    assert "expected-gradients" in agop.methods.runnable(None, with_references=True)
    assert not names & set(agop.methods.runnable(None))


@pytest.mark.parametrize("method", ["integrated-gradients", "smoothgrad"])
def test_gradients_of_a_float16_model_do_not_overflow_in_their_sum(method):
    model, images = nn.Sequential(nn.Flatten(), nn.Linear(432, 3)).half(), zoo.images(4).half() / 1000
    nn.init.constant_(model[1].weight, 3000)  # 50 such gradients are more than float16's largest number
    alone, together = (agop.explain(model, images, method, batch_size=size) for size in (1, None))
    assert together.isfinite().all()
    torch.testing.assert_close(together, alone, rtol=0.02, atol=0.01 * float(alone.max()))
