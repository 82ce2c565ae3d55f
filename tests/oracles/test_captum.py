"""Against Captum, on whatever both define alike."""

import pytest
import torch
from captum.attr import IntegratedGradients, LayerAttribution, LayerGradCam, NoiseTunnel, Saliency

import agop
from agop.networks import CNN8by8, ResNet18
from tests import zoo


def models():
    torch.manual_seed(0)
    yield "plain", zoo.build("plain").eval(), zoo.images(), "body.2"
    yield "batch norm", zoo.build("batch norm and dropout").eval(), zoo.images(), "3"
    yield "CNN8by8", CNN8by8().eval(), torch.randn(6, 1, 8, 8), "conv3"
    yield "ResNet-18", ResNet18(5).eval(), torch.randn(3, 3, 32, 32), "layer2"


# float64: in float32 a ReLU whose input is 0 to rounding may flip between the two implementations.
ALL = {name: (model.double(), images.double(), layer) for name, model, images, layer in models()}
pytestmark = pytest.mark.parametrize("name", ALL)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))


def test_saliency(name):
    model, images, _ = ALL[name]
    targets = model(images).argmax(1)
    expected = Saliency(model).attribute(images.clone().requires_grad_(), target=targets).sum(1)
    close(agop.explain(model, images, "vanilla"), expected)


@pytest.mark.parametrize(("steps", "baseline"), [(50, 0.0), (20, 0.3)])
def test_integrated_gradients(name, steps, baseline):
    model, images, _ = ALL[name]
    targets = model(images).argmax(1)
    expected = IntegratedGradients(model).attribute(
        images, baselines=baseline, target=targets, n_steps=steps, method="riemann_right", internal_batch_size=64
    )
    found = agop.explain(model, images, agop.methods.IntegratedGradients(steps=steps, baseline=baseline))
    close(found, expected.abs().sum(1))


def test_integrated_gradients_from_pictures(name):
    """A picture as the baseline, one an image by a function, and several, whose mean Captum gives one by one."""
    model, images, _ = ALL[name]
    targets = model(images).argmax(1)

    def theirs(baseline, steps):
        return IntegratedGradients(model).attribute(
            images, baselines=baseline.expand_as(images), target=targets, n_steps=steps, method="riemann_right",
            internal_batch_size=64,
        )  # fmt: skip

    def ours(baseline):
        return agop.explain(model, images, agop.methods.IntegratedGradients(steps=20, baseline=baseline))

    torch.manual_seed(3)
    pictures = torch.randn(2, *images.shape[1:])
    close(ours(pictures[0]), theirs(pictures[:1], 20).abs().sum(1))
    close(ours(lambda given: given / 2), theirs(images / 2, 20).abs().sum(1))
    each = torch.stack([theirs(picture[None], 10) for picture in pictures])
    close(ours(pictures), each.mean(0).abs().sum(1))


def test_smoothgrad(name):
    """Different draws of the same noise: equal to the accuracy of many of them, and not without noise."""
    model, images, _ = ALL[name]
    images, targets, samples = images[:2], model(images[:2]).argmax(1), 400
    torch.manual_seed(1)
    tunnel = NoiseTunnel(Saliency(model))
    expected = tunnel.attribute(
        images, nt_type="smoothgrad", nt_samples=samples, nt_samples_batch_size=50, stdevs=0.15, target=targets,
        abs=False,
    ).abs().sum(1)  # fmt: skip
    found = agop.explain(model, images, agop.methods.SmoothGrad(samples=samples))
    error = (found - expected).norm() / expected.norm()
    distance = (agop.explain(model, images, "vanilla") - expected).norm() / expected.norm()
    assert error < 0.35
    assert error < 0.6 * distance


@pytest.mark.filterwarnings("ignore:the map of layer")
def test_gradcam(name):
    model, images, layer = ALL[name]
    targets = model(images).argmax(1)
    coarse = LayerGradCam(model, model.get_submodule(layer)).attribute(images, target=targets, relu_attributions=True)
    expected = LayerAttribution.interpolate(coarse, images.shape[-2:], "bilinear")[:, 0].detach()
    close(agop.explain(model, images, "gradcam", layer=layer), expected)
