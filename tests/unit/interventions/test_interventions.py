"""Each intervention against a slow twin that changes one image, one pixel or one coefficient at a time."""

import math

import pytest
import torch

from agop import interventions
from agop.errors import InputError, UnknownNameError

REGION = torch.zeros(7, 6, dtype=torch.bool)
REGION[1:4, 2:5] = REGION[3, 1] = True


@pytest.fixture
def pair():
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(5, 3, 7, 6, generator=generator, dtype=torch.float64) for _ in range(2))


def paste(hosts, donors, inside):
    """Hosts with the donors' pixel wherever inside(row, column)."""
    result = hosts.clone()
    for row in range(hosts.shape[2]):
        for column in range(hosts.shape[3]):
            if inside(row, column):
                result[:, :, row, column] = donors[:, :, row, column]
    return result


def test_transplant_and_remove_are_mirror_images(pair):
    hosts, donors = pair
    twin = paste(hosts, donors, lambda row, column: REGION[row, column])
    assert torch.equal(interventions.Transplant(REGION).changed(hosts, donors), twin)
    assert torch.equal(interventions.Remove(REGION).changed(donors, hosts), twin)
    assert interventions.Remove.removes
    assert not interventions.Transplant.removes


@pytest.mark.parametrize(("width", "inset"), [(1, 0), (2, 0), (1, 1)])
def test_border_is_a_frame(pair, width, inset):
    hosts, donors = pair
    twin = paste(hosts, donors, lambda r, c: inset <= min(r, 6 - r, c, 5 - c) < inset + width)
    assert torch.equal(interventions.Border(width, inset).changed(hosts, donors), twin)


def test_border_that_covers_the_image_raises(pair):
    with pytest.raises(InputError, match="smaller width"):
        interventions.Border(3).changed(*pair)


def test_transplant_elsewhere_pastes_each_donors_patch_at_its_place(pair):
    hosts, donors = pair
    corners = torch.tensor([[0, 0], [5, 4], [2, 3], [1, 1], [4, 0]])
    intervention = interventions.TransplantElsewhere(corners, side=2, seed=3)
    twin = hosts.clone()
    for image, (place, corner) in enumerate(zip(intervention.places(5, 7, 6).tolist(), corners.tolist(), strict=True)):
        for row in range(2):
            for column in range(2):
                pixel = donors[image, :, corner[0] + row, corner[1] + column]
                twin[image, :, place[0] + row, place[1] + column] = pixel
    before = hosts.clone()
    assert torch.equal(intervention.changed(hosts, donors), twin)
    assert torch.equal(hosts, before)
    places = interventions.TransplantElsewhere(corners, side=2, seed=4).places(500, 7, 6)
    assert places.amin(dim=0).tolist() == [0, 0]
    assert places.amax(dim=0).tolist() == [5, 4]


def test_colour_gives_each_channel_the_donors_moments(pair):
    hosts, donors = pair
    changed = interventions.Colour().changed(hosts, 3 * donors + 1)
    for image in range(len(hosts)):
        for channel in range(3):
            values, source = hosts[image, channel], 3 * donors[image, channel] + 1
            twin = (values - values.mean()) / values.std(correction=0) * source.std(correction=0) + source.mean()
            assert torch.allclose(changed[image, channel], twin)


def test_colour_of_constant_images_is_the_donors_mean():
    changed = interventions.Colour().changed(torch.zeros(1, 1, 4, 4), torch.eye(4)[None, None])
    assert torch.allclose(changed, torch.full((1, 1, 4, 4), 0.25))


def test_high_frequency_swaps_coefficients(pair):
    hosts, donors = pair
    twin = torch.zeros_like(hosts)
    rows, columns = torch.arange(7.0, dtype=torch.float64)[:, None], torch.arange(6.0, dtype=torch.float64)
    for u in range(7):
        for v in range(6):
            high = min(u, 7 - u) / 7 >= 0.25 or min(v, 6 - v) / 6 >= 0.25
            wave = torch.exp(2j * math.pi * (u * rows / 7 + v * columns / 6))
            coefficient = ((donors if high else hosts) * wave.conj()).sum(dim=(2, 3), keepdim=True)
            twin += (coefficient * wave).real / 42
    assert torch.allclose(interventions.HighFrequency(0.25).changed(hosts, donors), twin)


def test_unknown_name_raises():
    with pytest.raises(UnknownNameError, match="transplant"):
        interventions.get("transplants")
