"""Mathematical properties, checked on random inputs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import agop
from tests import zoo

settings.register_profile("agop", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("agop")


@given(st.integers(1, 9), st.integers(0, 1000))
def test_class_diagonals_average_to_the_diagonal(samples, seed):
    a = agop.fit(zoo.build("plain", seed), [zoo.images(samples, seed=seed)], False, True, progress=False)
    weighted = a.class_diagonals.nan_to_num() * a.class_counts[:, None, None, None]
    torch.testing.assert_close(weighted.sum(0) / a.count, a.diagonal)


@given(st.floats(0.1, 10), st.integers(0, 100))
def test_scaling_the_logits_scales_the_diagonal_quadratically_but_not_the_weights(factor, seed):
    model, images = zoo.build("plain", seed), zoo.images(seed=seed)
    scaled = nn.Sequential(model, Scale(factor))
    ours, theirs = (agop.fit(m, [images], only_correct=False, progress=False) for m in (model, scaled))
    torch.testing.assert_close(theirs.diagonal, ours.diagonal * factor**2, rtol=1e-4, atol=1e-12)
    torch.testing.assert_close(theirs.weights, ours.weights, rtol=1e-4, atol=1e-6)


class Scale(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, logits):
        return logits * self.factor


@given(st.integers(0, 1000))
def test_smoothgrad_without_noise_equals_vanilla(seed):
    model, images = zoo.build("batch norm and dropout", seed), zoo.images(seed=seed)
    smooth = agop.explain(model, images, agop.methods.SmoothGrad(samples=3, sigma=0.0))
    torch.testing.assert_close(smooth, agop.explain(model, images, "vanilla"), rtol=1e-4, atol=1e-6)


@given(st.integers(0, 1000))
def test_agop_local_and_agop_weighted_with_a_constant_prior_equal_vanilla(seed):
    model, images = zoo.build("plain", seed), zoo.images(seed=seed)
    even = agop.AGOP(torch.full((3, 12, 12), 4.0, dtype=torch.float64), 1)
    vanilla = agop.explain(model, images, "vanilla")
    torch.testing.assert_close(agop.explain(model, images, "agop-weighted", even), vanilla)
    assert torch.equal(agop.explain(model, images, "agop-local"), vanilla)


@given(st.integers(0, 1000))
def test_integrated_gradients_of_a_linear_model_are_image_times_weights(seed):
    torch.manual_seed(seed)
    model, images = nn.Sequential(nn.Flatten(), nn.Linear(432, 3)), zoo.images(seed=seed)
    weights = model[1].weight[model(images).argmax(1)].reshape(-1, 3, 12, 12)
    expected = (weights * images).abs().sum(1).detach()
    maps = agop.explain(model, images, agop.methods.IntegratedGradients(steps=7))
    torch.testing.assert_close(maps, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("build", [zoo.batch_normed, lambda: zoo.Wrapped(torch.square)], ids=["norms", "squares"])
@pytest.mark.parametrize("baseline", [0.0, 0.5])
def test_integrated_gradients_are_complete(build, baseline):
    """Their sum converges to f(x) − f(x'). No term is negative if all weights and x − x' are positive."""
    torch.manual_seed(0)
    model, images, targets = build().eval(), zoo.images().abs() + baseline, torch.tensor([0, 1, 2, 0, 1])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    method = agop.methods.IntegratedGradients(steps=2000, baseline=baseline)
    total = agop.explain(model, images, method, target=targets).sum((1, 2))
    with torch.no_grad():
        rise = model(images) - model(torch.full_like(images, baseline))
    torch.testing.assert_close(total, rise.gather(1, targets[:, None])[:, 0], rtol=1e-2, atol=2e-3)


@given(st.integers(0, 1000), st.floats(0.1, 10))
def test_gradcam_is_linear_in_the_logits(seed, factor):
    model, images = zoo.build("plain", seed), zoo.images(seed=seed)
    scaled = nn.Sequential(model, Scale(factor))
    ours = agop.explain(model, images, "gradcam", layer="body.0")
    theirs = agop.explain(scaled, images, "gradcam", layer="0.body.0")
    torch.testing.assert_close(theirs, ours * factor, rtol=1e-3, atol=1e-5)
