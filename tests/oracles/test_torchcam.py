"""GradCAM's default layer, and GradCAM++ against torchcam and against its definition, pixel by pixel.

torchcam 0.5.0 divides a temporary copy of α (`alpha[idx][mask].div_(…)` writes to the copy that indexing returns), so
its weights lack the denominator. The oracle is torchcam's own code with that line fixed, and with an epsilon that is
small compared to g².
"""

import inspect
import textwrap

import pytest
import torch
from torch import nn

import agop
from agop.model.layers import feature_maps, layer_name
from agop.model.probe import probing
from tests import zoo

torchcam_gradient = pytest.importorskip("torchcam.methods.gradient", reason="torchcam needs Python 3.11")
GradCAMpp = torchcam_gradient.GradCAMpp
BROKEN, FIXED = "alpha[idx][mask].div_(d[mask] + eps)", "alpha[idx][mask] = alpha[idx][mask] / (d[mask] + eps)"


def fixed_torchcam():
    source = textwrap.dedent(inspect.getsource(GradCAMpp._get_weights))
    assert BROKEN in source, "torchcam has changed: compare with its own code"
    scope = dict(vars(torchcam_gradient))
    exec(source.replace(BROKEN, FIXED).replace("eps: float = 1e-8", "eps: float = 1e-20"), scope)
    return type("Fixed", (GradCAMpp,), {"_get_weights": scope["_get_weights"]})


def averaging():
    """A model whose gradients are constant over each map of the layer: there torchcam's sum equals the paper's."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 3),
    ).eval()  # fmt: skip


@pytest.mark.parametrize("build", [averaging, zoo.batch_normed, zoo.trained_resnet])
def test_default_layer_is_that_of_torchcam(build):
    """Except where a pooled map follows, which is coarser."""
    torch.manual_seed(0)
    model = build()
    if build is zoo.batch_normed:
        model[7] = nn.AdaptiveAvgPool2d(1)
        model[9] = nn.Linear(8, 3)
    with GradCAMpp(model, input_shape=(3, 64, 64)) as extractor:
        assert extractor.target_names == [layer_name(model, torch.randn(1, 3, 64, 64))]


def theirs(extractor_class, model, image, layer):
    with extractor_class(model, layer) as extractor:
        logits = model(image.clone().requires_grad_())
        return extractor(int(logits.argmax()), logits, normalized=False)[0][0]


def test_gradcam_plus_plus_equals_fixed_torchcam():
    model, images = averaging(), zoo.images(6)
    expected = torch.stack([theirs(fixed_torchcam(), model, image[None], "2") for image in images])
    maps = agop.explain(model, images, "gradcam++", layer="2")
    torch.testing.assert_close(maps, expected, rtol=1e-3, atol=1e-4 * float(expected.max()))


def test_torchcam_without_the_fix_differs():
    """If this fails, torchcam may have fixed it: drop the fix above."""
    model, image = averaging(), zoo.images(1)
    broken, fixed = (theirs(kind, model, image, "2") for kind in (GradCAMpp, fixed_torchcam()))
    assert not torch.allclose(broken / broken.max(), fixed / fixed.max(), atol=0.01)


@pytest.mark.parametrize(("kind", "layer"), [("plain", "body.0"), ("batch norm and dropout", "2")])
def test_weights_equal_the_definition_pixel_by_pixel(kind, layer):
    """Equations 10 and 19 of Chattopadhay et al. (2018), as a loop."""
    model, images = zoo.build(kind), zoo.images(3)
    with probing(model) as probe:
        features = feature_maps(probe, images, None, model.get_submodule(layer))
    a, g = features.activations.double(), features.gradients.double()
    samples, channels, height, width = a.shape
    expected = torch.zeros(samples, channels, dtype=torch.float64)
    for n in range(samples):
        for k in range(channels):
            for i in range(height):
                for j in range(width):
                    slope = float(g[n, k, i, j])
                    if slope > 0:
                        alpha = slope**2 / (2 * slope**2 + float(a[n, k].sum()) * slope**3)
                        expected[n, k] += alpha * slope
    weights = agop.methods.GradCAMPlusPlus().weights(features)
    torch.testing.assert_close(weights.double(), expected, rtol=1e-3, atol=1e-6)
