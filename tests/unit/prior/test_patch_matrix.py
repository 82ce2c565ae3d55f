"""The patch matrix of a layer, against a loop over samples and positions."""

import copy

import pytest
import torch
from torch import nn

import agop
from agop.errors import LayerError
from tests import zoo


def slow_patch_matrices(model, name, images, tokens=None):
    """Σ_p δ_p δ_pᵀ (N,D,D) of each sample, in a loop over samples and positions, from a bias at each position."""
    model = copy.deepcopy(model).double().eval()
    matrices = []
    for image in images.double():
        shifts = []

        def shift(_, __, output, shifts=shifts):
            shifts.append(torch.zeros_like(output, requires_grad=True))
            return output + shifts[-1]

        handle = model.get_submodule(name).register_forward_hook(shift)
        logits = zoo.plain_logits(model(image[None]), 1)[0]
        handle.remove()
        (delta,) = torch.autograd.grad(logits[int(logits.argmax())], shifts[-1])
        columns = delta[0].flatten(1).T if delta.ndim == 4 else delta[0][-tokens:]  # the class token is first
        matrices.append(sum((torch.outer(column, column) for column in columns), torch.zeros(1)))
    return torch.stack(matrices)


LAYERS = {
    "plain": "body.0", "batch norm and dropout": "0", "in-place": "0", "in-place first": "1.0", "layer norm": "conv",
    "attention": "patch", "tuple": "body.0",
}  # fmt: skip


@pytest.mark.parametrize("kind", LAYERS)
def test_patch_matrix_of_the_first_convolution_is_that_of_a_loop_over_samples_and_positions(kind):
    model, images = zoo.build(kind), zoo.images(9)
    expected = slow_patch_matrices(model, LAYERS[kind], images).mean(0)
    hook = agop.AGOPTrainingHook(model, only_correct=False)
    hook.step(images)
    for prior in (agop.fit(model, [images[:5], images[5:]], False, progress=False, batch_size=2), hook.finalize()):
        assert prior.layer == LAYERS[kind]
        assert prior.patch_matrix.dtype == torch.float64
        torch.testing.assert_close(prior.patch_matrix, expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()))


def test_a_folded_batch_norm_does_not_change_the_patch_matrix():
    model, images = zoo.trained_resnet(), zoo.images(4, shape=(3, 32, 32))
    with torch.no_grad():
        model.bn1.weight[3] = 0
    prepared, unfolded = agop.prepare(model), agop.prepare(model, keep=["conv1"])
    both = [agop.fit(each, [images], False, progress=False).patch_matrix for each in (prepared, unfolded, model)]
    assert not isinstance(prepared.bn1, nn.BatchNorm2d)
    for patch_matrix in both[1:]:
        torch.testing.assert_close(both[0], patch_matrix, rtol=1e-3, atol=1e-4 * float(both[1].abs().max()))


def test_agop_of_patches_equals_the_mean_outer_product_of_gradients_with_respect_to_unfolded_patches():
    """WᵀSW, compared with gradients through a model whose convolution is a linear layer of unfolded patches."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 5, 3, stride=2, padding=1, dilation=2)
    head = nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(5 * 25, 3))
    model, images = nn.Sequential(convolution, head), zoo.images(6)
    prior = agop.fit(model, [images], False, progress=False)
    unfold = nn.Unfold(3, stride=2, padding=1, dilation=2)
    patches = unfold(images).requires_grad_()
    outputs = torch.einsum("dk,nkp->ndp", convolution.weight.flatten(1), patches) + convolution.bias[:, None]
    logits = head(outputs.unflatten(2, (5, 5)))
    (gradients,) = torch.autograd.grad(logits.amax(1).sum(), patches)
    dense = torch.einsum("nkp,nlp->kl", gradients.double(), gradients.double()) / len(images)
    weight = convolution.weight.detach().double().flatten(1)
    torch.testing.assert_close(weight.T @ prior.patch_matrix @ weight, dense, rtol=1e-4, atol=1e-7)


def test_tokens_of_a_named_layer_count_without_the_class_token():
    model, images = zoo.build("attention"), zoo.images(5)
    expected = slow_patch_matrices(model, "block.norm1", images, tokens=9).mean(0)
    prior = agop.fit(model, [images], False, progress=False, layer="block.norm1")
    torch.testing.assert_close(prior.patch_matrix, expected, rtol=1e-4, atol=1e-6)
    assert prior.layer == "block.norm1"
    assert prior.patch_matrix.any()


def test_only_counted_samples_are_in_the_patch_matrix_also_by_class():
    model, images, labels = zoo.build("plain"), zoo.images(12), torch.arange(12) % 3
    matrices = slow_patch_matrices(model, "body.0", images)
    predictions = model(images).argmax(1)
    correct = predictions == labels
    prior = agop.fit(model, [(images, labels)], per_class=True, progress=False, batch_size=5)
    torch.testing.assert_close(prior.patch_matrix, matrices[correct].mean(0), rtol=1e-4, atol=1e-8)
    for label, own in enumerate(prior.class_patch_matrices):
        chosen = correct & (labels == label)
        assert bool(own.isnan().all()) == (not chosen.any())
        if chosen.any():
            torch.testing.assert_close(own, matrices[chosen].mean(0), rtol=1e-4, atol=1e-8)


def test_large_matrices_per_class_are_added_to_one(monkeypatch):
    model, images = zoo.build("plain"), zoo.images(12)
    small = agop.fit(model, [images[:7], images[7:]], False, True, progress=False)
    monkeypatch.setattr("agop.prior.accumulator._MOST_BYTES", 3 * 6 * 6 * 8 - 1)
    large = agop.fit(model, [images[:7], images[7:]], False, True, progress=False)
    assert small.class_patch_matrices.shape == (3, 6, 6)
    assert large.class_patch_matrices is None
    torch.testing.assert_close(large.patch_matrix, small.patch_matrix)


def test_a_model_without_convolution_has_no_patch_matrix_and_an_unknown_layer_lists_candidates():
    model, images = nn.Sequential(nn.Flatten(), nn.Linear(432, 3)), zoo.images()
    prior = agop.fit(model, [images], False, progress=False)
    assert prior.patch_matrix is None
    assert prior.layer is None
    assert agop.fit(zoo.build("plain"), [images], False, progress=False, patches=False).patch_matrix is None
    with pytest.raises(LayerError, match=r"no layer 'head'.*candidates: 0, 1"):
        agop.fit(model, [images], False, progress=False, layer="head")
    with pytest.raises(LayerError, match="no layer 'conv9'"):
        agop.AGOPTrainingHook(zoo.build("plain"), layer="conv9")


def test_a_named_layer_must_be_called_and_depend_on_the_images():
    class Odd(zoo.Wrapped):
        def __init__(self):
            super().__init__()
            self.unused, self.constant = nn.Conv2d(3, 2, 1), nn.Conv2d(3, 2, 1)

        def forward(self, x):
            return super().forward(x) + self.constant(torch.ones_like(x)).mean()

    for layer, problem in (("unused", "wasn't called"), ("constant", "doesn't depend on the images")):
        with pytest.raises(LayerError, match=problem):
            agop.fit(Odd(), [zoo.images()], False, progress=False, layer=layer)
    assert agop.fit(Odd(), [zoo.images()], False, progress=False).layer == "body.0"
