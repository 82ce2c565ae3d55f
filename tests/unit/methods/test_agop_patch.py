from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

import agop
from agop.errors import LayerError, PriorError
from agop.statistic.provenance import Provenance
from tests import zoo


def prior_for(model, images, **options):
    return agop.fit(model, [images], only_correct=False, progress=False, **options)


def weights(prior):
    return (prior.diagonal / prior.diagonal.max()).sqrt().mean(0).float()


def slow_patch_map(image, convolution, matrix, padding):
    """Loop over patches: ‖S^½ W·patch‖ is added to each pixel of the patch, then divided by the number of patches."""
    (kh, kw), (sh, sw), (dh, dw) = convolution.kernel_size, convolution.stride, convolution.dilation
    left, right, top, bottom = padding
    padded = functional.pad(image, padding)
    total, count = torch.zeros(padded.shape[1:]), torch.zeros(padded.shape[1:])
    weight = convolution.weight.detach().flatten(1).double()
    for row in range(0, padded.shape[1] - dh * (kh - 1), sh):
        for column in range(0, padded.shape[2] - dw * (kw - 1), sw):
            rows, columns = row + dh * torch.arange(kh)[:, None], column + dw * torch.arange(kw)
            output = weight @ padded[:, rows, columns].flatten().double()
            total[rows, columns] += float((output @ matrix @ output).sqrt())
            count[rows, columns] += 1
    inside = slice(top, padded.shape[1] - bottom), slice(left, padded.shape[2] - right)
    return torch.where(count > 0, total / count, 0.0)[inside]


class PadsItself(nn.Conv2d):
    """Pads as TensorFlow does."""

    def forward(self, x):
        return super().forward(functional.pad(x, (0, 1, 0, 1)))


CONVOLUTIONS = {
    "padding": (nn.Conv2d(3, 5, 3, padding=1), (1, 1, 1, 1)),
    "stride and dilation": (nn.Conv2d(3, 5, 3, stride=2, dilation=2, padding=(2, 1)), (1, 1, 2, 2)),
    "same": (nn.Conv2d(3, 5, (5, 3), padding="same"), (1, 1, 2, 2)),
    "padding in the forward pass": (PadsItself(3, 5, 3, stride=2), (0, 1, 0, 1)),
    "patches": (nn.Conv2d(3, 5, 4, stride=4, bias=False), (0, 0, 0, 0)),
    "patches with gaps": (nn.Conv2d(3, 5, 2, stride=5), (0, 0, 0, 0)),
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_patch_map_is_that_of_a_loop_over_patches(kind):
    torch.manual_seed(0)
    convolution, padding = CONVOLUTIONS[kind]
    model = nn.Sequential(convolution, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(20, 3))
    images = zoo.images(4)
    prior = prior_for(model, images)
    maps = agop.explain(model, images, "agop-patch", prior)
    expected = torch.stack([slow_patch_map(image, convolution, prior.patch_matrix, padding) for image in images])
    expected = expected * weights(prior)
    torch.testing.assert_close(maps / maps.max(), expected / expected.max(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("prepared", [False, True])
def test_the_model_runs_only_up_to_the_layer_and_a_folded_batch_norm_changes_nothing(prepared):
    model, images, calls = zoo.build("batch norm and dropout"), zoo.images(), []
    prior = prior_for(model, images)
    expected = agop.explain(model, images, "agop-patch", prior)
    used = agop.prepare(model) if prepared else model
    used[3].register_forward_hook(lambda *_: calls.append(1))
    maps = agop.explain(used, images, "agop-patch", prior)
    torch.testing.assert_close(maps, expected, rtol=1e-4, atol=1e-6)
    assert not calls
    assert not any(module._forward_hooks for module in used[:3])


def test_tokens_are_scaled_bilinearly():
    model, images = zoo.build("attention"), zoo.images()
    prior = prior_for(model, images, layer="block.norm1")
    tokens = {}
    handle = model.block.norm1.register_forward_hook(lambda _, __, output: tokens.update(value=output.detach()))
    model.eval()(images.clone().requires_grad_())
    handle.remove()
    patches = tokens["value"][:, 1:].double()
    norms = torch.einsum("ntd,de,nte->nt", patches, prior.patch_matrix, patches).sqrt().reshape(5, 1, 3, 3)
    expected = functional.interpolate(norms, (12, 12), mode="bilinear")[:, 0].float() * weights(prior)
    maps = agop.explain(model, images, "agop-patch", prior)
    torch.testing.assert_close(maps / maps.max(), expected / expected.max(), rtol=1e-3, atol=1e-5)


def test_a_deeper_convolution_is_scaled_from_the_size_of_its_input():
    model, images = nn.Sequential(nn.MaxPool2d(2), zoo.build("plain")), zoo.images()
    maps = agop.explain(model, images, "agop-patch", prior_for(model, images))
    assert maps.shape == (5, 12, 12)
    assert (maps > 0).any(dim=(1, 2)).all()


def test_errors_name_the_problem_and_the_fix():
    model, images = zoo.build("plain"), zoo.images()
    prior = prior_for(model, images)
    flat = nn.Sequential(nn.Flatten(), nn.Linear(432, 3))
    with pytest.raises(LayerError, match=r"no convolution.*layer=….*candidates: 0, 1"):
        agop.explain(flat, images, "agop-patch", prior_for(flat, images))
    with pytest.raises(PriorError, match=r"no patch matrix: make one with agop.fit"):
        agop.explain(model, images, "agop-patch", prior_for(model, images, patches=False))

    def explain(**changes):
        agop.explain(model, images, "agop-patch", replace(prior, **changes))

    with pytest.raises(PriorError, match=r"patch matrix is 4×4, its layer has 6 channels in this model"):
        explain(patch_matrix=torch.eye(4).double())
    with pytest.raises(PriorError, match=r"patch matrix of layer 'body.0' is zero"):
        explain(patch_matrix=torch.zeros(6, 6).double())
    with pytest.raises(PriorError, match=r"layer 'stem': the model has no layer 'stem'.*candidates: body.0"):
        explain(provenance=Provenance(layer="stem"))


def test_methods_that_need_more_than_the_prior_has_are_not_runnable():
    model, images = zoo.build("plain"), zoo.images()
    both, neither = prior_for(model, images, rank=2), prior_for(model, images, patches=False)
    new = {"agop-patch", "agop-subspace"}
    assert new <= set(agop.methods.runnable(both))
    assert not new & set(agop.methods.runnable(neither))
    assert set(agop.methods.runnable(neither)) | new >= set(agop.methods.runnable(both))
    assert agop.methods.lacking("agop-subspace", neither) == "the prior has no sketch"
