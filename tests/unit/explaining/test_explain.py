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


def test_vanilla_is_the_sum_of_absolute_gradients():
    model, images = zoo.build("plain"), zoo.images()
    gradients, _ = zoo.per_sample_loop(model, images)
    torch.testing.assert_close(agop.explain(model, images, "vanilla"), gradients.abs().sum(1))
    assert torch.equal(agop.explain(model, images, "agop-local"), agop.explain(model, images, "vanilla"))


def test_agop_weighted_is_the_gradient_times_the_prior_s_weights():
    model, images = zoo.build("plain"), zoo.images()
    gradients, _ = zoo.per_sample_loop(model, images)
    weights = (prior().diagonal / 2).sqrt()
    expected = (gradients.abs() * weights).sum(1).float()
    torch.testing.assert_close(agop.explain(model, images, prior=prior()), expected)


def test_agop_global_is_the_diagonal_and_never_runs_the_model():
    class Untouchable(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError("the model was called")

    maps = agop.explain(Untouchable(), zoo.images(1000), "agop-global", prior())
    assert maps.shape == (1000, 12, 12)
    torch.testing.assert_close(maps[7], prior().diagonal.sum(0).float())
    assert maps.untyped_storage().nbytes() == 12 * 12 * 4


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


def test_agop_global_checks_targets_without_a_forward_pass():
    with pytest.raises(InputError, match="target 9"):
        agop.explain(zoo.build("plain"), zoo.images(), "agop-global", prior(), target=9)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("agop-weigthed", "agop-weighted"),
        ("Smooth-Grad", "smoothgrad"),
        ("integrated_gradients", "integrated-gradients"),
    ],
)
def test_unknown_method_raises_with_suggestion(name, hint):
    with pytest.raises(UnknownNameError, match=f"did you mean '{hint}'"):
        agop.explain(zoo.build("plain"), zoo.images(), name)
    with pytest.raises(UnknownNameError, match="known: random, vanilla"):
        agop.explain(zoo.build("plain"), zoo.images(), "zzz")


def test_invalid_methods_and_options_raise():
    with pytest.raises(InputError, match="method is a int"):
        agop.explain(zoo.build("plain"), zoo.images(), 3)
    with pytest.raises(InputError, match="steps is 0"):
        agop.methods.IntegratedGradients(steps=0)
    with pytest.raises(InputError, match="samples is -1"):
        agop.methods.SmoothGrad(samples=-1)


@pytest.mark.parametrize("method", ["agop-weighted", "agop-global"])
def test_missing_or_invalid_prior_raises(method):
    with pytest.raises(PriorError, match=rf"{method} needs a prior: create one with agop\.fit"):
        agop.explain(zoo.build("plain"), zoo.images(), method)
    with pytest.raises(PriorError, match=r"prior is a str: .*AGOP\.load"):
        agop.explain(zoo.build("plain"), zoo.images(), method, prior="prior.safetensors")


def test_layer_raises_for_methods_without_one():
    with pytest.raises(InputError, match="layer= is for gradcam"):
        agop.explain(zoo.build("plain"), zoo.images(), "vanilla", layer="body.0")


def test_invalid_batch_size_raises():
    with pytest.raises(InputError, match="batch_size is 0"):
        agop.explain(zoo.build("plain"), zoo.images(), "vanilla", batch_size=0)


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
    with pytest.raises(InputError, match="nan is 'ignore'"):
        agop.explain(zoo.build("plain"), images, method, nan="ignore")


def test_bfloat16_models_give_float32_maps():
    model = zoo.build("plain").bfloat16()
    for method in agop.methods.names():
        layer = "body.0" if method.startswith("gradcam") else None
        assert agop.explain(model, zoo.images(), method, prior(), layer=layer).dtype == torch.float32


def test_own_method_is_registered_and_its_maps_are_checked():
    from dataclasses import dataclass
    from typing import ClassVar

    from agop.methods import Job, Method, base

    @dataclass(frozen=True)
    class Squared(Method):
        """g² instead of |g|."""

        name: ClassVar[str] = "squared-for-this-test"

        def maps(self, job: Job):
            return job.gradients().square().sum(1)

    try:
        model, images = zoo.build("plain"), zoo.images()
        gradients, _ = zoo.per_sample_loop(model, images)
        torch.testing.assert_close(agop.explain(model, images, "squared-for-this-test"), gradients.square().sum(1))
        assert "squared-for-this-test" in agop.methods.names()

        @dataclass(frozen=True)
        class Wrong(Method):
            name: ClassVar[str] = "wrong-for-this-test"
            kind: int = 0

            def maps(self, job: Job):
                return (job.images, -job.images[:, 0], "text")[self.kind]

        for kind in range(3):
            with pytest.raises(InputError, match=r"must return a non-negative tensor \(5, 12, 12\)"):
                agop.explain(model, images, Wrong(kind))
        with pytest.raises(InputError, match="already a method"):

            class Twice(Method):
                name = "squared-for-this-test"
    finally:
        for name in ("squared-for-this-test", "wrong-for-this-test"):
            base.registry._plugins.pop(name, None)
