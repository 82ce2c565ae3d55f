"""Methods of the AGOP: where × what × which, weighted, global, expected, patch and subspace."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

import agop
from agop.errors import InputError, LayerError, PriorError
from tests import zoo

REFERENCES = zoo.images(4, seed=2)
# A prior of fewer samples takes no part in `where`, and the part of a class with fewer in nothing.
ENOUGH_SAMPLES = 100


def fit(model, images=None, **options):
    images = zoo.images(7, seed=3) if images is None else images
    return agop.fit(model, [images], only_correct=False, progress=False, **options)


def prior_for(model, count=ENOUGH_SAMPLES, **options):
    """The prior of seven images that says that there were more."""
    return replace(fit(model, **options), count=count)


def factors_of(model, images, prior, method="agop:where=1", **options):
    return agop.explain(model, images, method, prior, references=REFERENCES, factors=True, **options)


def scaled(values):
    return values / values.amax((1, 2), keepdim=True)


def toned(values, share):
    """a / (a + t), t the first value, from the largest on, at which the share of the map's mass is reached."""
    maps = []
    for image in values:
        mass, wanted = 0.0, share * float(image.sum())
        for threshold in sorted(image.flatten().tolist(), reverse=True):
            mass += threshold
            if mass >= wanted:
                break
        maps.append(image / (image + threshold))
    return torch.stack(maps)


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


def test_factors_are_those_of_their_definitions_and_the_map_is_their_product():
    model, images = zoo.build("plain"), zoo.images(3)
    prior = prior_for(model)
    maps, factors = factors_of(model, images, prior)
    assert list(factors) == ["where", "what", "which"]  # the last map of this model is 5×5
    even = agop.AGOP(torch.ones(3, 12, 12).double(), 1)
    which = agop.explain(model, images, "agop-expected:samples=16", even, references=REFERENCES)
    torch.testing.assert_close(factors["which"], scaled(which).sqrt(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(factors["what"], scaled(slow_what(model, images, prior.patch_matrix)))
    torch.testing.assert_close(maps, toned(factors["where"] * factors["what"] * factors["which"], 0.5))
    torch.testing.assert_close(agop.explain(model, images, "agop:where=1", prior, references=REFERENCES), maps)


@pytest.mark.parametrize(("inside", "tuned", "exponent"), [(0.9, 8, 0), (1e-2, None, 2), (1e-2, 1, 1), (1e-2, 8, 8)])
def test_exponent_is_the_tuned_one_unless_the_prior_is_even(inside, tuned, exponent):
    """V is 1 in the left half and smaller in the right one. From 3 on, all exponents are divided."""
    model, images = zoo.build("plain"), zoo.images(2)
    diagonal = torch.full((3, 12, 12), inside, dtype=torch.float64)
    diagonal[:, :, :6] = 1
    prior = prior_for(model)
    own = {} if tuned is None else {"where": tuned}
    prior = replace(prior, diagonal=diagonal, provenance=replace(prior.provenance, tuned=own))
    factors = factors_of(model, images, prior, "agop")[1]
    plain = factors_of(model, images, prior)[1]
    power = 3 / max(3, exponent)
    torch.testing.assert_close(factors["what"], plain["what"] ** power)
    if not exponent:
        assert "where" not in factors
        return
    assert (factors["where"][:, :, :6] == 1).all()
    expected = torch.full((2, 12, 6), inside ** (exponent / 2 * power))
    torch.testing.assert_close(factors["where"][:, :, 6:], expected)
    few = replace(prior, count=ENOUGH_SAMPLES - 1)
    assert "where" not in factors_of(model, images, few, "agop")[1]


def test_model_at_chance_warns():
    model, images = zoo.build("plain"), zoo.images(2)
    prior = prior_for(model)
    chance = replace(prior, provenance=replace(prior.provenance, classes=3, labelled=100, correct=35))
    with pytest.warns(agop.AGOPWarning, match="as by chance with 3 classes"):
        agop.explain(model, images, "agop", chance)


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
    torch.testing.assert_close(maps, toned(torch.stack(list(factors.values())).prod(0), 0.5))
    # No evidence for class 0, so the class map is 1 everywhere.
    assert not agop.explain(model, images, "gradcam", target=0).any()
    assert (factors_of(model, images, prior, target=0)[1]["class map"] == 1).all()


def test_named_layer_gives_the_class_map_and_an_unknown_one_raises():
    model, images = zoo.build("plain"), zoo.images(2)
    prior = prior_for(model)
    factors = factors_of(model, images, prior, "agop:where=1,layer=body.0")[1]
    expected = agop.explain(model, images, "gradcam", layer="body.0")
    torch.testing.assert_close(factors["class map"], scaled(expected), rtol=0, atol=1e-5)
    with pytest.raises(LayerError, match="no layer 'other'"):
        factors_of(model, images, prior, layer="other")


def photo_network(size=112):
    """Maps of 14×14 at stride 8, then of 7×7, for images of 112×112. The 7×7 block starts with a layer of 14×14."""
    torch.manual_seed(0)
    block = nn.Sequential(nn.Conv2d(5, 9, 1), nn.ReLU(inplace=True), nn.Conv2d(9, 6, 3, stride=2, padding=1), nn.ReLU())
    stem = nn.Sequential(nn.Conv2d(3, 4, 4, stride=4), nn.ReLU(inplace=True))
    body = nn.Sequential(stem, nn.Sequential(nn.Conv2d(4, 5, 2, stride=2), nn.Tanh()), block)
    model = nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)).eval()
    return model, torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(1))


def layer_gradients(model, images, layers, targets):
    """Activations and gradients of the log-odds at layers of the photo network's body, one image at a time."""
    results = []
    for image, target in zip(images, targets, strict=True):
        parts, values = [image[None]], []
        for module in model[0]:
            parts.append(module(parts[-1]))
        logits = model[1:](parts[-1])[0]
        others = torch.cat([logits[:target], logits[target + 1 :]])
        odds = logits[target] - others.logsumexp(0)
        for layer in layers:
            (gradient,) = torch.autograd.grad(odds, [parts[layer + 1]], retain_graph=True)
            values.append((parts[layer + 1][0].detach(), gradient[0]))
        results.append(values)
    return results


def upsampled(maps, size=112):
    return functional.interpolate(torch.stack(maps)[:, None], (size, size), mode="bilinear")[:, 0]


def factors_at_one_size(model, images, targets):
    """The three factors at one size of the images, each with a maximum of 1."""
    parts = layer_gradients(model, images, [1, 2], targets)
    coarse = [(g.mean((1, 2))[:, None, None] * a).sum(0).relu() for _, (a, g) in parts]
    coarse = [(c / c.max() + 1e-6).sqrt() if c.any() else torch.ones_like(c) for c in coarse]
    norms, alike = [fine[1].norm(dim=0) for fine, _ in parts], []
    for ((activations, _), _), norm, c in zip(parts, norms, coarse, strict=True):
        sides = norm.shape
        weights = norm * functional.interpolate(c[None, None], sides, mode="bilinear")[0, 0]
        centred = (activations - activations.mean(dim=(1, 2), keepdim=True)).flatten(1).T  # a row per position
        rows = centred / centred.norm(dim=1, keepdim=True)
        direction = sum(weight * row for weight, row in zip(weights.flatten(), rows, strict=True))
        values = (rows @ direction / direction.norm()).clamp_min(0).reshape(sides)
        alike.append(values / values.max() + 1e-6)
    return [scaled(upsampled(maps)) for maps in (norms, coarse, alike)]


def test_photo_network_needs_no_prior_and_its_map_is_layers_class_map_and_alike_at_two_sizes():
    model, images = photo_network()
    targets = [2, 0, 1]
    maps, factors = agop.explain(model, images, target=targets, factors=True)
    assert list(factors) == ["layers", "class map", "alike"]
    twice = functional.interpolate(images, (224, 224), mode="bilinear")
    pairs = zip(*(factors_at_one_size(model, x, targets) for x in (images, twice)), strict=True)
    for values, (small, large) in zip(factors.values(), pairs, strict=True):
        torch.testing.assert_close(values, scaled((small * large) ** (1 / 3)), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(maps, toned(torch.stack([*factors.values()]).prod(dim=0), 0.5))
    assert torch.equal(maps, agop.explain(model, images, target=targets))
    for batch_size in (1, 2):
        torch.testing.assert_close(agop.explain(model, images, target=targets, batch_size=batch_size), maps)


def test_the_fine_block_is_the_one_before_the_last_convolution_that_spreads_gradients_over_neighbours():
    torch.manual_seed(0)

    def block(kernel, stride=1):
        return nn.Sequential(nn.Conv2d(4, 4, kernel, stride, padding=kernel // 2), nn.Tanh())

    blocks = nn.Sequential(block(3), block(3), block(1))
    model = nn.Sequential(nn.Conv2d(3, 4, 8, 8), blocks, block(1, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images = torch.randn(2, 3, 112, 112)
    norms = agop.explain(model.eval(), images, agop.methods.AGOPLayer(layer="1.0"))
    assert torch.equal(agop.explain(model, images, "agop-layer"), norms)


def test_network_for_images_of_one_size_gets_a_map_of_that_size():
    model, images = photo_network()
    fixed = nn.Sequential(model[0], nn.Flatten(), nn.Linear(6 * 7 * 7, 4)).eval()
    with torch.no_grad():  # as the mean over positions does
        fixed[2].weight.copy_(model[3].weight.repeat_interleave(49, dim=1) / 49)
        fixed[2].bias.copy_(model[3].bias)
    factors = agop.explain(fixed, images, target=[2, 0, 1], factors=True)[1]
    for values, expected in zip(factors.values(), factors_at_one_size(model, images, [2, 0, 1]), strict=True):
        torch.testing.assert_close(values, expected ** (2 / 3), rtol=1e-4, atol=1e-4)


def test_without_a_prior_small_feature_maps_raise_and_the_error_names_fit():
    model, images = photo_network(size=104)  # 13×13
    with pytest.raises(PriorError, match=r"agop needs a prior.*smaller than 14×14: create one with agop\.fit"):
        agop.explain(model, images)
    prior = fit(model, images)
    assert "layers" not in agop.explain(model, images, prior=prior, factors=True)[1]


def test_tone_keeps_the_order_of_the_pixels():
    model, images = zoo.build("plain"), zoo.images(3)
    prior = prior_for(model)
    maps, factors = factors_of(model, images, prior)
    plain = torch.stack(list(factors.values())).prod(0)
    for metric in ("deletion", "insertion"):
        scores = [getattr(agop.metrics, metric)(model, images, values) for values in (maps, plain)]
        torch.testing.assert_close(*scores)
    masks = zoo.images(3, seed=8)[:, 0] > 1
    for metric in ("average_precision", "pointing_game", "rank_accuracy"):
        assert torch.equal(*(getattr(agop.metrics, metric)(values, masks) for values in (maps, plain)))
    assert ((maps >= 0) & (maps < 1)).all()


def test_agop_layer_is_the_norm_of_the_gradient_at_the_last_fine_block_or_weighted_by_s():
    model, images = photo_network()
    targets = [1, 1, 3]
    parts = layer_gradients(model, images, [1, 0], targets)
    expected = upsampled([fine[1].norm(dim=0) for fine, _ in parts])
    explain = {"target": targets, "output": "log_odds"}
    torch.testing.assert_close(agop.explain(model, images, "agop-layer", **explain), expected)
    expected = upsampled([stem[1].norm(dim=0) for _, stem in parts])
    torch.testing.assert_close(agop.explain(model, images, "agop-layer", layer="0.0", **explain), expected)
    normgrad = upsampled([fine[1].norm(dim=0) * fine[0].norm(dim=0) for fine, _ in parts])
    torch.testing.assert_close(agop.explain(model, images, "normgrad", **explain), normgrad)
    prior = fit(model, images, layer="0.1")
    weighted = agop.explain(model, images, "agop-layer:weighted=true", prior, **explain)
    matrix = prior.patch_matrix.float()
    norms = upsampled([torch.einsum("dhw,de,ehw->hw", fine[1], matrix, fine[1]).sqrt() for fine, _ in parts])
    torch.testing.assert_close(scaled(weighted), scaled(norms), rtol=1e-3, atol=1e-4)
    with pytest.raises(PriorError, match=r"is that of layer '0\.1': pass that layer"):
        agop.explain(model, images, "agop-layer:weighted=true", prior, layer="0.0")
    with pytest.raises(PriorError, match=r"needs a prior"):
        agop.explain(model, images, "agop-layer:weighted=true")


def test_model_without_convolutions_has_the_other_factors():
    model = nn.Sequential(nn.Flatten(), nn.Linear(432, 5), nn.ReLU(), nn.Linear(5, 3))
    assert factors_of(model, zoo.images(2), prior_for(model))[1].keys() == {"where", "which"}


CONTROLS = {
    "activation-norm": lambda model, images: slow_what(model, images, torch.eye(6, dtype=torch.float64)),
    "sobel": lambda model, images: agop.explain(model, images, "sobel"),
    "mean-difference": lambda _, images: (images - REFERENCES.mean(0)).abs().sum(1),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_control_replaces_the_factor_what_only(control):
    model, images = zoo.build("plain"), zoo.images(2)
    prior = prior_for(model)
    own, other = (
        factors_of(model, images, prior, name)[1] for name in ("agop:where=1", f"agop:where=1,what={control}")
    )
    assert torch.equal(own["where"], other["where"])
    assert torch.equal(own["which"], other["which"])
    assert not torch.allclose(own["what"], other["what"], atol=1e-3)
    torch.testing.assert_close(other["what"], scaled(CONTROLS[control](model, images)))


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


# diag(M) rises from pixel to pixel.
RISING = agop.AGOP(torch.linspace(0.1, 2, 432).double().reshape(3, 12, 12), 7)


def test_agop_weighted_is_the_gradient_times_the_prior_s_weights():
    model, images = zoo.build("plain"), zoo.images()
    gradients, _ = zoo.per_sample_loop(model, images)
    weights = (RISING.diagonal / 2).sqrt()
    expected = (gradients.abs() * weights).sum(1).float()
    torch.testing.assert_close(agop.explain(model, images, "agop-weighted", RISING), expected)


def test_agop_global_is_the_diagonal_never_runs_the_model_and_takes_the_memory_of_one_map():
    class Untouchable(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError("the model was called")

    many = 2**50  # a tensor of one byte per value couldn't be allocated
    maps = agop.explain(Untouchable(), zoo.images(1).expand(many, -1, -1, -1), "agop-global", RISING)
    assert maps.shape == (many, 12, 12)
    torch.testing.assert_close(maps[7], RISING.diagonal.sum(0).float())


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
    prior = fit(model, images)
    maps = agop.explain(model, images, "agop-patch", prior)
    expected = torch.stack([slow_patch_map(image, convolution, prior.patch_matrix, padding) for image in images])
    expected = expected * weights(prior)
    torch.testing.assert_close(maps / maps.max(), expected / expected.max(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("prepared", [False, True])
def test_the_model_runs_only_up_to_the_layer_and_a_folded_batch_norm_changes_nothing(prepared):
    model, images, calls = zoo.build("batch norm and dropout"), zoo.images(), []
    prior = fit(model, images)
    expected = agop.explain(model, images, "agop-patch", prior)
    used = agop.prepare(model) if prepared else model
    used[3].register_forward_hook(lambda *_: calls.append(1))
    maps = agop.explain(used, images, "agop-patch", prior)
    torch.testing.assert_close(maps, expected, rtol=1e-4, atol=1e-6)
    assert not calls
    assert not any(module._forward_hooks for module in used[:3])


def test_tokens_are_scaled_bilinearly():
    model, images = zoo.build("attention"), zoo.images()
    prior = fit(model, images, layer="block.norm1")
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
    maps = agop.explain(model, images, "agop-patch", fit(model, images))
    assert maps.shape == (5, 12, 12)
    assert (maps > 0).any(dim=(1, 2)).all()


def test_errors_name_the_problem_and_the_fix():
    model, images = zoo.build("plain"), zoo.images()
    prior = fit(model, images)
    flat = nn.Sequential(nn.Flatten(), nn.Linear(432, 3))
    with pytest.raises(LayerError, match=r"no convolution.*layer=….*candidates: 0, 1"):
        agop.explain(flat, images, "agop-patch", fit(flat, images))
    with pytest.raises(PriorError, match=r"no sketch: make one with agop.fit\(model, loader, rank=64\)"):
        agop.explain(model, images, "agop-subspace", prior)
    with pytest.raises(PriorError, match=r"no patch matrix: make one with agop.fit"):
        agop.explain(model, images, "agop-patch", fit(model, images, patches=False))

    def explain(**changes):
        agop.explain(model, images, "agop-patch", replace(prior, **changes))

    with pytest.raises(PriorError, match=r"patch matrix is 4×4, its layer has 6 channels in this model"):
        explain(patch_matrix=torch.eye(4).double())
    with pytest.raises(PriorError, match=r"patch matrix of layer 'body.0' is zero"):
        explain(patch_matrix=torch.zeros(6, 6).double())
    with pytest.raises(PriorError, match=r"layer 'stem': the model has no layer 'stem'.*candidates: body.0"):
        explain(provenance=replace(prior.provenance, layer="stem"))


@pytest.mark.parametrize("kind", ["plain", "attention"])
@pytest.mark.parametrize("scale", [1.0, 1e-12])
def test_map_is_the_dense_approximation_of_m_times_the_gradient(kind, scale):
    model, images = zoo.build(kind), zoo.images(9)
    head = model.body[-1] if kind == "plain" else model.head
    with torch.no_grad():
        head.weight *= scale
    prior = fit(model, images, rank=4)
    rows = prior.sketch.double().flatten(1)
    dense = rows.T @ rows / prior.count + torch.diag(prior.residual.flatten())
    gradients = agop.input_gradients(model, images).values.double()
    expected = (gradients.flatten(1) @ dense).reshape(gradients.shape).abs().sum(1)
    maps = agop.explain(model, images, "agop-subspace", prior)
    torch.testing.assert_close((maps / maps.max()).double(), expected / expected.max(), rtol=1e-3, atol=1e-5)
