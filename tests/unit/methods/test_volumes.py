"""Volumes (N,C,D,H,W): a volume of one slice is an image."""

import pytest
import torch
from torch import nn

import agop
from agop import outputs
from agop.errors import InputError
from tests import zoo

METHODS = [name for name in agop.methods.names() if not agop.methods.get(name).needs_images]
CAPTUM = ["captum:InputXGradient", "captum:Occlusion", "captum:FeatureAblation", "captum:DeepLift"]


def flat():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1), nn.Tanh(), nn.Conv2d(5, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(400, 3)
    ).eval()


def deep():
    """The same network with 3-D convolutions, whose kernels have one slice."""
    net = flat()
    for place in (0, 2):
        plain = net[place]
        padding = (0, *plain.padding)
        net[place] = nn.Conv3d(plain.in_channels, plain.out_channels, (1, 3, 3), padding=padding)
        with torch.no_grad():
            net[place].weight.copy_(plain.weight[:, :, None])
            net[place].bias.copy_(plain.bias)
    return net


def both(call):
    """The results for images and for volumes of one slice."""
    images, references = zoo.images(), zoo.images(4, seed=2)
    return call(flat(), images, references), call(deep(), images[:, :, None], references[:, :, None])


def fitted(model, images):
    return agop.fit(model, [images], False, progress=False, rank=3, tune=False, patches=False)


@pytest.mark.parametrize("method", [*METHODS, *CAPTUM])
def test_maps_of_a_volume_of_one_slice_are_those_of_the_image(method):
    if method == "agop":
        pytest.skip("for images it has another factor, the class map")

    def maps(model, images, references):
        return agop.explain(model, images, method, fitted(model, images), references=references, batch_size=2)

    image, volume = both(maps)
    assert volume.shape == (5, 1, 12, 12)
    torch.testing.assert_close(volume[:, 0], image, rtol=1e-4, atol=1e-6)


def test_agop_and_every_other_method_have_maps_of_several_slices():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv3d(2, 4, 3), nn.Tanh(), nn.AdaptiveAvgPool3d(2), nn.Flatten(), nn.Linear(32, 3))
    volumes = zoo.images(6, shape=(2, 5, 7, 6))
    prior = agop.fit(model, [volumes], False, progress=False, rank=3)
    assert prior.diagonal.shape == (2, 5, 7, 6)
    assert "5×7×6" in repr(prior)
    assert "2×5×7×6 input values" in prior._repr_html_()
    assert agop.sanity(model, volumes, "vanilla").correlations.shape[1] == 6
    with pytest.raises(InputError, match=r"images have shape .6, 2, 5, 7, 6.: give .N,C,H,W."):
        agop.evaluate(model, volumes, volumes[:, 0] > 0)
    for method in (*METHODS, *CAPTUM):
        maps = agop.explain(model, volumes, method, prior)
        assert maps.shape == (6, 5, 7, 6)
        assert maps.isfinite().all()
        assert float(maps.max()) > 0
    whole = agop.explain(model, volumes, "integrated-gradients:steps=300", signed=True, target=1).sum((1, 2, 3))
    change = (model(volumes) - model(torch.zeros_like(volumes)))[:, 1].detach()
    torch.testing.assert_close(whole, change, rtol=0.02, atol=0.005)


def test_metrics_of_a_volume_of_one_slice_are_those_of_the_image():
    maps = torch.rand(5, 12, 12, generator=torch.Generator().manual_seed(1))
    masks = maps > 0.7
    for name in agop.metrics.names():
        metric = agop.metrics.get(name)
        if metric.needs_model:
            options = {"steps": 6} | ({"fill": 0.0} if name == "srg" else {})
            image, volume = (
                metric(flat(), zoo.images(), maps, **options),
                metric(deep(), zoo.images()[:, :, None], maps[:, None], **options),
            )
        elif name == "emd":
            with pytest.raises(InputError, match="emd is for images"):
                metric(maps[:, None], masks[:, None])
            continue
        else:
            image, volume = metric(maps, masks), metric(maps[:, None], masks[:, None])
        torch.testing.assert_close(volume, image)


@pytest.mark.parametrize("method", [name for name in agop.methods.names() if name not in METHODS])
def test_methods_for_images_say_so(method):
    volumes = zoo.images()[:, :, None]
    with pytest.raises(InputError, match=r"is for images .N,C,H,W., these are volumes .*: use a method of gradients"):
        agop.explain(deep(), volumes, method, fitted(deep(), volumes))


def test_a_segmentation_of_volumes():
    torch.manual_seed(0)
    model, volumes = nn.Conv3d(2, 3, 3, padding=1), zoo.images(4, shape=(2, 4, 6, 6))
    region = volumes[:, 0] > 0
    gradients = agop.input_gradients(model, volumes, output=outputs.segment(1, region))
    expected = (model(volumes)[:, 1] * region).sum((1, 2, 3)) / region.sum((1, 2, 3))
    torch.testing.assert_close(gradients.logits[:, 0], expected.detach())
