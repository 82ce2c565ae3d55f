"""Mathematical properties, checked on random inputs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import agop
from agop.methods import Job
from agop.model.probe import probing
from agop.statistic.accumulator import Accumulator
from tests import zoo

SHAPE, CLASSES = (2, 3, 3), 3
settings.register_profile("agop", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("agop")


@st.composite
def accumulators(draw, per_class):
    sums = Accumulator(per_class)
    for _ in range(draw(st.integers(0, 3))):
        samples, seed = draw(st.integers(1, 4)), draw(st.integers(0, 2**16))
        random = torch.Generator().manual_seed(seed)
        gradients = torch.randn(samples, *SHAPE, generator=random) * 10.0 ** draw(st.integers(-6, 6))
        sums.update(gradients, torch.randint(0, CLASSES, (samples,), generator=random), CLASSES)
    sums.skipped, sums.labelled, sums.correct = (draw(st.integers(0, 3)) for _ in range(3))
    return sums


def assert_equal(a: Accumulator, b: Accumulator, exactly: bool = False):
    assert (a.skipped, a.labelled, a.correct) == (b.skipped, b.labelled, b.correct)
    assert a.count == b.count
    assert (a.sums is None) == (b.sums is None)
    if a.sums is not None:
        assert torch.equal(a.counts, b.counts)
        torch.testing.assert_close(a.sums, b.sums, rtol=0 if exactly else 1e-12, atol=0)


@given(st.booleans().flatmap(lambda p: st.tuples(*[accumulators(per_class=p)] * 3)))
def test_merge_is_associative_and_commutative_has_an_identity_and_changes_no_argument(parts):
    a, b, c = parts
    empty = Accumulator(a.per_class)
    before = a.merge(empty)
    assert_equal(a.merge(b).merge(c), a.merge(b.merge(c)))
    assert_equal(a.merge(b), b.merge(a))
    for unchanged in (before, empty.merge(a)):
        assert_equal(a, unchanged, exactly=True)


@given(accumulators(per_class=True))
def test_class_diagonals_average_to_the_diagonal(a):
    if a.count:
        weighted = a.class_diagonals().nan_to_num() * a.counts[:, None, None, None]
        torch.testing.assert_close(weighted.sum(0) / a.count, a.diagonal())


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


@pytest.mark.parametrize("kind", ["plain", "batch norm and dropout", "attention"])
@pytest.mark.parametrize("baseline", [0.0, 0.5])
def test_integrated_gradients_are_complete(kind, baseline):
    """Their sum converges to f(x) − f(x')."""
    model, images, targets = zoo.build(kind).eval(), zoo.images(), torch.tensor([0, 1, 2, 0, 1])
    method = agop.methods.IntegratedGradients(steps=2000, baseline=baseline)
    with probing(model) as probe:
        total = method.attribution(Job(images, targets, rows=500, given_probe=probe)).sum((1, 2, 3))
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
