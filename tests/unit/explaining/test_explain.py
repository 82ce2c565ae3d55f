import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch

import agop
from agop.errors import AGOPWarning, GradientError, InputError, PriorError, UnknownNameError
from agop.statistic.provenance import Provenance
from tests import zoo


def prior() -> agop.AGOP:
    return agop.AGOP(torch.linspace(0.1, 2, 432).double().reshape(3, 12, 12), 7, provenance=Provenance(classes=3))


def test_names_start_with_the_paper_s_nine_methods_in_its_order():
    assert agop.methods.names()[:9] == [
        "random", "vanilla", "integrated-gradients", "smoothgrad", "gradcam", "gradcam++",
        "agop-local", "agop-weighted", "agop-global",
    ]  # fmt: skip


def test_agop_weighted_is_the_gradient_times_the_prior_s_weights():
    model, images = zoo.build("plain"), zoo.images()
    gradients, _ = zoo.per_sample_loop(model, images)
    weights = (prior().diagonal / 2).sqrt()
    expected = (gradients.abs() * weights).sum(1).float()
    torch.testing.assert_close(agop.explain(model, images, "agop-weighted", prior()), expected)


def test_agop_global_is_the_diagonal_and_never_runs_the_model():
    class Untouchable(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError("the model was called")

    maps = agop.explain(Untouchable(), zoo.images(1000), "agop-global", prior())
    assert maps.shape == (1000, 12, 12)
    torch.testing.assert_close(maps[7], prior().diagonal.sum(0).float())
    assert maps.untyped_storage().nbytes() == 12 * 12 * 4


def test_maps_of_agop_global_take_the_time_and_memory_of_one():
    model, image = zoo.build("plain"), zoo.images(1)
    prior = agop.fit(model, [image], only_correct=False, progress=False)
    many = 2**50  # a tensor of one byte per value couldn't be allocated
    maps = agop.explain(model, image.expand(many, -1, -1, -1), "agop-global", prior)
    assert maps.shape == (many, 12, 12)


def test_method_may_be_a_name_a_class_or_an_object():
    model, images = zoo.build("plain"), zoo.images()
    few = agop.explain(model, images, agop.methods.IntegratedGradients(steps=3))
    assert not torch.allclose(few, agop.explain(model, images, agop.methods.IntegratedGradients))
    assert torch.equal(
        agop.explain(model, images, agop.methods.IntegratedGradients()),
        agop.explain(model, images, "integrated-gradients"),
    )


@pytest.mark.parametrize("method", ["vanilla", "integrated-gradients", "smoothgrad", "gradcam", "agop-weighted"])
def test_target_selects_the_explained_class(method):
    model, images = zoo.build("plain"), zoo.images()
    layer = "body.0" if method == "gradcam" else None

    def explain(target):
        return agop.explain(model, images, method, prior(), target=target, layer=layer)

    predicted = zoo.per_sample_loop(model, images)[1]
    assert torch.equal(explain(None), explain(predicted))
    assert torch.equal(explain(1), explain([1] * 5))
    assert not torch.allclose(explain(0), explain(1))
    torch.testing.assert_close(explain([0, 1, 2, 1, 0])[1], explain(1)[1])
    with pytest.raises(InputError, match="target 3 of sample 0"):
        explain(3)
    with pytest.raises(InputError, match="target -1"):
        explain(-1)


@pytest.mark.parametrize(
    ("method", "options", "error", "message"),
    [
        (3, {}, InputError, "method is a int"),
        ("agop-weigthed", {}, UnknownNameError, "did you mean 'agop-weighted'"),
        ("Smooth-Grad", {}, UnknownNameError, "did you mean 'smoothgrad'"),
        ("integrated_gradients", {}, UnknownNameError, "did you mean 'integrated-gradients'"),
        ("zzz", {}, UnknownNameError, "known: random, vanilla"),
        ("vanilla", {"layer": "body.0"}, InputError, "layer= is for gradcam"),
        ("vanilla", {"batch_size": 0}, InputError, "batch_size is 0"),
        ("vanilla", {"nan": "ignore"}, InputError, "nan is 'ignore'"),
        ("agop-global", {"prior": prior(), "target": 9}, InputError, "target 9"),  # without a forward pass
        ("agop-weighted", {"prior": agop.AGOP(torch.ones(3, 20, 20), 5)}, PriorError, r"\(3, 20, 20\).*\(3, 12, 12\)"),
    ],
)
def test_invalid_arguments_raise(method, options, error, message):
    with pytest.raises(error, match=message):
        agop.explain(zoo.build("plain"), zoo.images(), method, **options)


@pytest.mark.parametrize("method", ["agop-weighted", "agop-global"])
@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (None, r"agop-\w+ needs a prior: create one with agop\.fit"),
        ("prior.safetensors", r"prior is a str: .*AGOP\.load"),
        (agop.AGOP(torch.zeros(3, 12, 12), 5), r"max diag\(M\) is 0"),
    ],
)
def test_missing_or_invalid_prior_raises(method, prior, message):
    with pytest.raises(PriorError, match=message):
        agop.explain(zoo.build("plain"), zoo.images(), method, prior)


def test_invalid_options_of_a_method_raise():
    with pytest.raises(InputError, match="steps is 0"):
        agop.methods.IntegratedGradients(steps=0)
    with pytest.raises(InputError, match="samples is -1"):
        agop.methods.SmoothGrad(samples=-1)


@pytest.mark.parametrize("method", ["vanilla", "integrated-gradients", "smoothgrad", "gradcam", "agop-weighted"])
def test_non_finite_gradients_raise_with_the_sample_or_are_skipped(method):
    images = zoo.images(6)
    images[3] = torch.nan
    layer = "body.0" if method == "gradcam" else None
    with pytest.raises(GradientError, match=r"sample 3 \(1 of 6\)"):
        agop.explain(zoo.build("plain"), images, method, prior(), layer=layer, batch_size=2)
    with pytest.warns(AGOPWarning, match="sample 3"):
        maps = agop.explain(zoo.build("plain"), images, method, prior(), layer=layer, nan="skip")
    assert maps[3].isnan().all()
    assert maps[[0, 1, 2, 4, 5]].isfinite().all()


@dataclass(frozen=True)
class Wrong(agop.methods.Method):
    output: Callable

    def maps(self, job):
        return self.output(job.images)


Wrong.name = "wrong"  # outside the class: a name inside would register it for all tests


@pytest.mark.parametrize("output", [lambda images: images, lambda images: -images[:, 0].abs(), lambda images: "text"])
def test_maps_of_own_methods_are_checked(output):
    with pytest.raises(InputError, match=r"must return a non-negative tensor \(5, 12, 12\)"):
        agop.explain(zoo.build("plain"), zoo.images(), Wrong(output))


@pytest.mark.parametrize(("correct", "warns"), [(35, True), (45, False)])
def test_prior_of_a_model_at_chance_warns(correct, warns):
    model, images = zoo.build("plain"), zoo.images(2)
    fitted = agop.fit(model, [zoo.images(7)], only_correct=False, progress=False)
    at_chance = replace(fitted, provenance=replace(fitted.provenance, labelled=100, correct=correct))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        agop.explain(model, images, "agop-weighted", at_chance)
    assert any(f"classified {correct}% of the prior's images" in str(w.message) for w in caught) == warns
