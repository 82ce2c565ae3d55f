"""Our methods against Captum, where both have the same definition."""

import pytest
import torch
from captum.attr import IntegratedGradients, LayerAttribution, LayerGradCam, NoiseTunnel, Saliency

import agop
from agop.bench import CNN8by8, ResNet18
from tests import zoo


def models():
    torch.manual_seed(0)
    yield "plain", zoo.build("plain").eval(), zoo.images(), "body.2"
    yield "batch norm", zoo.build("batch norm and dropout").eval(), zoo.images(), "3"
    yield "CNN8by8", CNN8by8().eval(), torch.randn(6, 1, 8, 8), "conv3"
    yield "ResNet-18", ResNet18(5).eval(), torch.randn(2, 3, 32, 32), "layer2"


# float64: in float32 a ReLU whose input is 0 up to rounding may flip between the two implementations.
ALL = {name: (model.double(), images.double(), layer) for name, model, images, layer in models()}
pytestmark = pytest.mark.parametrize("name", ALL)


def close(maps, expected):
    torch.testing.assert_close(maps, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))


def test_saliency(name):
    model, images, _ = ALL[name]
    targets = model(images).argmax(1)
    expected = Saliency(model).attribute(images.clone().requires_grad_(), target=targets).sum(1)
    close(agop.explain(model, images, "vanilla"), expected)


def test_integrated_gradients(name):
    """Baselines: a number, one image, one per image by a function, and several, which Captum computes one by one."""
    model, images, _ = ALL[name]
    targets = model(images).argmax(1)

    def theirs(baseline, steps):
        return IntegratedGradients(model).attribute(
            images, baseline, target=targets, n_steps=steps, method="riemann_right", internal_batch_size=64
        )

    def ours(baseline, steps=8):
        return agop.explain(model, images, agop.methods.IntegratedGradients(steps=steps, baseline=baseline))

    torch.manual_seed(3)
    baselines = torch.randn(2, *images.shape[1:]).double()
    close(ours(0.0, 20), theirs(0.0, 20).abs().sum(1))
    close(ours(0.3, 7), theirs(0.3, 7).abs().sum(1))
    close(ours(baselines[0]), theirs(baselines[:1], 8).abs().sum(1))
    close(ours(lambda batch: batch / 2), theirs(images / 2, 8).abs().sum(1))
    each = torch.stack([theirs(baseline[None], 4) for baseline in baselines])
    close(ours(baselines), each.mean(0).abs().sum(1))


def test_smoothgrad(name):
    """Captum draws its noise from the global generator: with our seed and one image at a time, it draws ours."""
    model, images, _ = ALL[name]
    images, samples = images[:2], 8
    maps = agop.explain(model, images, agop.methods.SmoothGrad(samples=samples, seed=3))
    for image, ours in zip(images, maps, strict=True):
        torch.manual_seed(3)
        expected = NoiseTunnel(Saliency(model)).attribute(
            image[None], nt_type="smoothgrad", nt_samples=samples, stdevs=0.15, target=model(image[None]).argmax(1),
            abs=False,
        ).abs().sum(1)[0]  # fmt: skip
        close(ours, expected)
    distance = (agop.explain(model, images, "vanilla") - maps).norm() / maps.norm()
    assert distance > 0.05  # the noise matters


@pytest.mark.filterwarnings("ignore:the map of layer")
def test_gradcam(name):
    model, images, layer = ALL[name]
    targets = model(images).argmax(1)
    coarse = LayerGradCam(model, model.get_submodule(layer)).attribute(images, target=targets, relu_attributions=True)
    expected = LayerAttribution.interpolate(coarse, images.shape[-2:], "bilinear")[:, 0].detach()
    close(agop.explain(model, images, "gradcam", layer=layer), expected)
