"""The method agop: where × what × which."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import agop
from agop.errors import InputError, LayerError
from agop.runs.controls import AGOP_CONTROLS, is_control
from agop.statistic.agop import ENOUGH_SAMPLES
from tests import zoo

REFERENCES = zoo.images(4, seed=2)


def prior_for(model, count=ENOUGH_SAMPLES, **options):
    """The prior of seven images that says that there were more."""
    prior = agop.fit(model, [zoo.images(7, seed=3)], only_correct=False, progress=False, **options)
    return replace(prior, count=count)


def factors_of(model, images, prior, method="agop", **options):
    return agop.explain(model, images, method, prior, references=REFERENCES, factors=True, **options)


def scaled(values):
    return values / values.amax((1, 2), keepdim=True)


def slow_expected(model, images, samples=50):
    """Mean of |(x − b) · ∂f/∂x| on paths from references b, one image and one sample at a time."""
    generator = torch.Generator().manual_seed(0)
    drawn, shares = torch.randint(4, (samples,), generator=generator), torch.rand(samples, generator=generator)
    total = torch.zeros_like(images)
    for place, image in enumerate(images):
        target = int(model(image[None]).argmax())
        for k in range(samples):
            start = REFERENCES[drawn[k]]
            point = (start + shares[k] * (image - start)).requires_grad_()
            (gradient,) = torch.autograd.grad(model(point[None])[0, target], point)
            total[place] += ((image - start) * gradient).abs()
    return total.sum(1) / samples


def slow_what(model, images, matrix):
    """Mean of the norm of S^½ (o − mean o) over the 3×3 patches that contain each pixel."""
    convolution = model.body[0]
    outputs = (convolution(images) - convolution.bias[:, None, None]).double().detach()
    outputs = outputs - outputs.mean((2, 3), keepdim=True)
    norms = torch.einsum("ndhw,de,nehw->nhw", outputs, matrix, outputs).sqrt()
    maps = torch.zeros_like(norms)
    for row in range(12):
        for column in range(12):
            near = norms[:, max(0, row - 1) : row + 2, max(0, column - 1) : column + 2]
            maps[:, row, column] = near.mean((1, 2))
    return maps.float()


def test_factors_are_those_of_slow_loops_and_the_map_is_their_product():
    model, images = zoo.build("plain"), zoo.images(3)
    prior = prior_for(model)
    maps, factors = factors_of(model, images, prior)
    assert list(factors) == ["where", "what", "which"]  # the last map of this model is 5×5
    torch.testing.assert_close(factors["which"], scaled(slow_expected(model, images)), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(factors["what"], scaled(slow_what(model, images, prior.patch_matrix)))
    torch.testing.assert_close(maps, factors["where"] * factors["what"] * factors["which"])
    torch.testing.assert_close(agop.explain(model, images, "agop", prior, references=REFERENCES), maps)


@pytest.mark.parametrize(("inside", "exponent"), [(1.0, 0.0), (1e-6, 8.0)])
def test_flat_prior_takes_no_part_and_a_concentrated_one_decides(inside, exponent):
    """V is 1 in the left half and smaller in the right one."""
    model, images = zoo.build("plain"), zoo.images(2)
    diagonal = torch.full((3, 12, 12), inside, dtype=torch.float64)
    diagonal[:, :, :6] = 1
    prior = replace(prior_for(model), diagonal=diagonal)
    where = factors_of(model, images, prior)[1]["where"]
    torch.testing.assert_close(where[:, :, 6:], torch.full((2, 12, 6), inside ** (exponent / 2)))
    assert (where[:, :, :6] == 1).all()


def test_model_at_chance_has_an_even_map():
    model, images = zoo.build("plain"), zoo.images(2)
    prior = prior_for(model)
    chance, learned = (
        replace(prior, provenance=replace(prior.provenance, classes=3, labelled=100, correct=correct))
        for correct in (35, 90)
    )
    with pytest.warns(agop.AGOPWarning, match="as by chance with 3 classes"):
        maps = agop.explain(model, images, "agop", chance)
    assert (maps == 1).all()
    assert agop.explain(model, images, "agop", learned).std() > 0


def test_prior_of_few_samples_takes_no_part():
    model, images = zoo.build("plain"), zoo.images(2)
    assert "where" not in factors_of(model, images, prior_for(model, ENOUGH_SAMPLES - 1))[1]
    assert "where" in factors_of(model, images, prior_for(model))[1]


class Large(nn.Module):
    """Its last maps are 10×10 and support class 1."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU())

    def forward(self, x):
        evidence = self.body(x).mean((1, 2, 3))
        return torch.stack([-evidence, evidence], dim=1)


def test_class_map_takes_part_from_7x7_on_unless_it_is_zero():
    torch.manual_seed(0)
    model, images = Large(), zoo.images(3)
    prior = prior_for(model)
    maps, factors = factors_of(model, images, prior, target=1)
    expected = agop.explain(model, images, "gradcam", target=1)
    torch.testing.assert_close(factors["class map"], scaled(expected), rtol=0, atol=1e-5)
    assert (factors["class map"] > 0).all()
    torch.testing.assert_close(maps, torch.stack(list(factors.values())).prod(0))
    # No evidence for class 0, so the class map is 1 everywhere.
    assert not agop.explain(model, images, "gradcam", target=0).any()
    assert (factors_of(model, images, prior, target=0)[1]["class map"] == 1).all()


def test_named_layer_gives_the_class_map_and_an_unknown_one_raises():
    model, images = zoo.build("plain"), zoo.images(2)
    prior = prior_for(model)
    factors = factors_of(model, images, prior, "agop:layer=body.0")[1]
    expected = agop.explain(model, images, "gradcam", layer="body.0")
    torch.testing.assert_close(factors["class map"], scaled(expected), rtol=0, atol=1e-5)
    with pytest.raises(LayerError, match="no layer 'other'"):
        factors_of(model, images, prior, layer="other")


def test_model_without_convolutions_has_the_other_factors():
    model = nn.Sequential(nn.Flatten(), nn.Linear(432, 5), nn.ReLU(), nn.Linear(5, 3))
    assert factors_of(model, zoo.images(2), prior_for(model))[1].keys() == {"where", "which"}


@pytest.mark.parametrize("control", AGOP_CONTROLS)
def test_control_replaces_the_factor_what_only(control):
    model, images = zoo.build("plain"), zoo.images(2)
    prior = prior_for(model)
    own, other = (factors_of(model, images, prior, name)[1] for name in ("agop", control))
    assert is_control(control)
    assert not is_control("agop")
    assert torch.equal(own["where"], other["where"])
    assert torch.equal(own["which"], other["which"])
    assert not torch.allclose(own["what"], other["what"], atol=1e-3)


def test_mean_difference_and_activation_norm_are_what_they_say():
    model, images = zoo.build("plain"), zoo.images(2)
    prior = prior_for(model)
    what = factors_of(model, images, prior, "agop:what=mean-difference")[1]["what"]
    torch.testing.assert_close(what, scaled((images - REFERENCES.mean(0)).abs().sum(1)))
    what = factors_of(model, images, prior, "agop:what=activation-norm")[1]["what"]
    torch.testing.assert_close(what, scaled(slow_what(model, images, torch.eye(6, dtype=torch.float64))))


def test_classes_with_enough_samples_have_half_their_own_prior():
    model, images = zoo.build("plain"), zoo.images(2)
    prior = prior_for(model, per_class=True)
    few = replace(prior, class_counts=torch.tensor([ENOUGH_SAMPLES - 1] * 3))
    many = replace(prior, class_counts=torch.tensor([ENOUGH_SAMPLES] * 3))
    generator = torch.Generator().manual_seed(0)
    own = torch.rand(3, 3, 12, 12, generator=generator, dtype=torch.float64) ** 9 * 100 * prior.diagonal.max()
    matrices = torch.stack([k * torch.eye(6, dtype=torch.float64) for k in (1, 2, 3)])
    few, many = (replace(p, class_diagonals=own, class_patch_matrices=matrices) for p in (few, many))
    torch.testing.assert_close(few.weights_for(torch.tensor([2, 0])), few.weights.expand(2, -1, -1, -1))
    expected = (prior.diagonal + own[2]) / 2
    torch.testing.assert_close(many.weights_for(torch.tensor([2]))[0], (expected / expected.max()).sqrt())
    torch.testing.assert_close(many.patch_matrix_for(1), (prior.patch_matrix + matrices[1]) / 2)
    assert torch.equal(few.patch_matrix_for(1), prior.patch_matrix)
    for method in ("agop", "agop-patch", "agop-expected", "agop-weighted:by_class=true"):
        alike = [agop.explain(model, images, method, p, target=2, references=REFERENCES) for p in (few, many)]
        assert not torch.allclose(*map(scaled, alike), atol=1e-3), method
    weighted = [agop.explain(model, images, "agop-weighted", p, target=2) for p in (few, many)]
    assert torch.equal(*weighted)  # the paper's definition


def test_wrong_options_raise():
    with pytest.raises(InputError, match="what is 'edges': give patch-matrix"):
        agop.methods.create("agop:what=edges")
    model = zoo.build("plain")
    with pytest.raises(InputError, match="vanilla has no factors"):
        agop.explain(model, zoo.images(2), "vanilla", factors=True)
