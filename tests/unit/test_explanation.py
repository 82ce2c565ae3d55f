"""explain(): methods, targets, checks of its arguments, and peak memory."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode  # torch has no public way to see every allocation on a CPU

import agop
from agop.errors import AGOPWarning, GradientError, InputError, PriorError, UnknownNameError
from tests import zoo


def prior() -> agop.AGOP:
    return agop.fit(zoo.build("plain"), [zoo.images(7)], only_correct=False, progress=False)


def test_names_start_with_the_paper_s_nine_methods_in_its_order():
    assert agop.methods.names()[:9] == [
        "random", "vanilla", "integrated-gradients", "smoothgrad", "gradcam", "gradcam++",
        "agop-local", "agop-weighted", "agop-global",
    ]  # fmt: skip


def test_method_may_be_a_name_a_class_or_an_object():
    model, images = zoo.build("plain"), zoo.images()
    few = agop.explain(model, images, agop.methods.IntegratedGradients(steps=3))
    assert not torch.allclose(few, agop.explain(model, images, agop.methods.IntegratedGradients))
    assert torch.equal(
        agop.explain(model, images, agop.methods.IntegratedGradients()),
        agop.explain(model, images, "integrated-gradients"),
    )


def test_maps_that_the_prior_makes_alike_give_one_warning():
    model, images, statistic = zoo.build("plain"), zoo.images(8), prior()
    diagonal = torch.full_like(statistic.diagonal, 1e-6)
    diagonal[:, 2, 3] = 1
    statistic = replace(statistic, diagonal=diagonal, class_diagonals=None)
    with pytest.warns(AGOPWarning, match=r"maps of these 8 images hardly differ .*agop:where=0") as warnings:
        agop.explain(model, images, agop.methods.AGOPMethod(where=4), statistic)
    assert len(warnings) == 1
    agop.explain(model, images, agop.methods.AGOPMethod(where=0), statistic)
    agop.explain(model, images[:1].expand(8, -1, -1, -1), agop.methods.AGOPMethod(where=4), statistic)


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


class PeakMemory(TorchDispatchMode):
    """Tracks the bytes of all live tensors that operations allocate, in the forward and backward pass."""

    def __init__(self):
        super().__init__()
        self.live, self.peak, self.storages = 0, 0, weakref.WeakSet()

    def __torch_dispatch__(self, function, _types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        for tensor in output if isinstance(output, (tuple, list)) else [output]:
            if isinstance(tensor, torch.Tensor):
                self._track(tensor.untyped_storage())
        return output

    def _track(self, storage):
        if storage not in self.storages:
            self.storages.add(storage)
            self.live += storage.nbytes()
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self._free, storage.nbytes())

    def _free(self, size):
        self.live -= size


def peak(count: int, steps: int, batch_size: int) -> int:
    """Peak memory in bytes of explaining `count` images with `steps` steps."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.Softplus(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)
    )
    images, method = zoo.images(1).expand(count, -1, -1, -1), agop.methods.IntegratedGradients(steps=steps)
    with PeakMemory() as memory:
        maps = agop.explain(model, images, method, batch_size=batch_size)
    return memory.peak - maps.nbytes  # the result itself grows with the images


def test_peak_memory_grows_with_the_batch_size_only():
    little = peak(8, 4, 8)
    assert peak(8, 64, 8) == little
    assert peak(64, 4, 8) == little
    assert peak(64, 4, 64) > 4 * little


@pytest.mark.parametrize("method", ["input", "sobel", "laplace"])
def test_maps_of_methods_without_a_model_are_checked_and_ignore_autocast(method):
    model, images = zoo.build("plain"), zoo.images(3)
    expected = agop.explain(model, images, method)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(agop.explain(model, images, method), expected)
    images[1, 0, 5, 5] = torch.nan
    with pytest.raises(GradientError, match="sample 1"):
        agop.explain(model, images, method)
    with pytest.warns(AGOPWarning, match="sample 1"):
        assert agop.explain(model, images, method, nan="skip")[1].isnan().all()


@pytest.mark.parametrize("scale", [1e-22, 1e25])
def test_agop_global_of_extreme_gradients_can_be_normalised(scale):
    diagonal = torch.rand(3, 12, 12, dtype=torch.float64)
    images, model = zoo.images(2), zoo.build("plain")
    maps, expected = (agop.explain(model, images, "agop-global", agop.AGOP(s**2 * diagonal, 9)) for s in (scale, 1.0))
    torch.testing.assert_close(maps / maps.max(), expected / expected.max())
