"""Expected Gradients and AGOP-Expected against loops over images and draws."""

import pytest
import torch
from torch import nn

import agop
from agop.errors import InputError
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


def test_attribution_of_a_linear_model_is_complete():
    """It sums to f(x) − mean of f(b) over the drawn references, exactly."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(432, 3))
    image, one = zoo.images(1), REFERENCES[:1]
    method = agop.methods.ExpectedGradients(samples=4)
    maps = agop.explain(model, image, method, references=one, target=1)
    weight = model[1].weight[1].reshape(3, 12, 12)
    torch.testing.assert_close(maps[0], (weight * (image - one)[0]).abs().sum(0).detach())


def test_a_seed_decides_the_draws_and_a_single_reference_at_the_image_gives_zero():
    model, images = zoo.build("plain"), zoo.images(1)
    first, again, other = (
        agop.explain(model, images, f"expected-gradients:seed={seed}", references=REFERENCES) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    assert not agop.explain(model, images, "expected-gradients", references=images).any()


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


def test_samples_must_be_positive():
    with pytest.raises(InputError, match="expected-gradients: samples is 0"):
        agop.methods.ExpectedGradients(samples=0)
