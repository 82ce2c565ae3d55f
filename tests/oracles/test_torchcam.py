"""GradCAM's default layer and LayerCAM against torchcam, and GradCAM++ against its definition, pixel by pixel.

Not against torchcam 0.5.0, which divides a temporary copy of α (`alpha[idx][mask].div_(…)`), so its weights lack the
denominator.
"""

import pytest
import torch
from torch import nn
from torch.nn.functional import interpolate

import agop
from tests import zoo


def averaging():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 3),
    ).eval()  # fmt: skip


@pytest.mark.filterwarnings("ignore:the map of layer")
@pytest.mark.parametrize("build", [averaging, zoo.batch_normed, zoo.trained_resnet])
def test_default_layer_is_that_of_torchcam(build):
    """Except where a pooled map follows, which is coarser."""
    torchcam = pytest.importorskip("torchcam.methods", reason="torchcam needs Python 3.11")
    torch.manual_seed(0)
    model, images = build(), torch.randn(2, 3, 64, 64)
    if build is zoo.batch_normed:
        model[7] = nn.AdaptiveAvgPool2d(1)
        model[9] = nn.Linear(8, 3)
    with torchcam.GradCAM(model, input_shape=(3, 64, 64)) as extractor:
        (layer,) = extractor.target_names
    assert torch.equal(agop.explain(model, images, "gradcam"), agop.explain(model, images, "gradcam", layer=layer))


def test_layercam_equals_that_of_torchcam():
    torchcam = pytest.importorskip("torchcam.methods", reason="torchcam needs Python 3.11")
    model, images = averaging(), zoo.images(3)
    with torchcam.LayerCAM(model, "1", input_shape=(3, 12, 12)) as extractor:
        logits = model(images)
        (expected,) = extractor(logits.argmax(1).tolist(), logits, normalized=False)
    maps = agop.explain(model, images, "layercam", layer="1")
    torch.testing.assert_close(maps, expected.float(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("kind", "layer"), [("plain", "body.0"), ("batch norm and dropout", "2")])
def test_gradcam_plus_plus_equals_its_definition(kind, layer):
    """Equations 10 and 19 of Chattopadhay et al. (2018), as a loop."""
    model, images = zoo.build(kind).eval(), zoo.images(3)
    activations = []
    handle = model.get_submodule(layer).register_forward_hook(lambda *call: activations.append(call[-1]))
    logits = model(images)
    handle.remove()
    (gradients,) = torch.autograd.grad(logits.amax(dim=1).sum(), activations)
    a, g = activations[0].detach().double(), gradients.double()
    weights = torch.zeros(a.shape[:2], dtype=torch.float64)
    for n, k, i, j in torch.cartesian_prod(*map(torch.arange, a.shape)).tolist():
        slope = float(g[n, k, i, j])
        if slope > 0:
            weights[n, k] += slope * slope**2 / (2 * slope**2 + float(a[n, k].sum()) * slope**3)
    coarse = (weights[:, :, None, None] * a).sum(dim=1, keepdim=True).relu()
    expected = interpolate(coarse, images.shape[-2:], mode="bilinear")[:, 0].float()
    maps = agop.explain(model, images, "gradcam++", layer=layer)
    torch.testing.assert_close(maps, expected, rtol=1e-3, atol=1e-4 * float(expected.max()))
