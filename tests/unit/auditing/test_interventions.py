"""Each intervention against a slow twin that changes one image, one pixel or one coefficient at a time."""

import math

import pytest
import torch

from agop.auditing import interventions
from agop.errors import InputError

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


@pytest.mark.parametrize("width", [1, 2])
def test_border_is_a_frame(pair, width):
    hosts, donors = pair
    twin = paste(hosts, donors, lambda r, c: min(r, 6 - r, c, 5 - c) < width)
    assert torch.equal(interventions.Border(width).changed(hosts, donors), twin)


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


def test_colour_gives_each_channel_the_donors_darkest_and_brightest_level(pair):
    """0.5 % of 42 pixels is less than one pixel, so these are the minimum and the maximum."""
    hosts, donors = pair
    changed = interventions.Colour().changed(hosts, 3 * donors + 1)
    for image in range(len(hosts)):
        for channel in range(3):
            values, source = hosts[image, channel], 3 * donors[image, channel] + 1
            places = (values - values.min()) / (values.max() - values.min())
            assert torch.allclose(changed[image, channel], source.min() + places * (source.max() - source.min()))


def test_colour_ignores_half_a_percent_of_the_pixels_at_each_end():
    hosts = torch.arange(400.0).reshape(1, 1, 20, 20)
    donors = hosts.clone()
    donors[0, 0, 0, :2], donors[0, 0, -1, -1:] = -1e6, 1e6
    assert torch.allclose(interventions.Colour().changed(hosts, donors), hosts)


def test_colour_of_constant_images_is_the_donors_darkest_level():
    changed = interventions.Colour().changed(torch.full((1, 1, 4, 4), 0.7), torch.eye(4)[None, None] + 0.25)
    assert torch.allclose(changed, torch.full((1, 1, 4, 4), 0.25))


def test_statistics_of_transplant_are_pixels_minus_their_neighbourhood(pair):
    images = pair[0]
    measured = interventions.Transplant(REGION).statistics(images)
    expected = []
    for channel in range(3):
        for row, column in REGION.nonzero().tolist():
            rows = [min(6, max(0, row + step)) for step in (-1, 0, 1)]
            columns = [min(5, max(0, column + step)) for step in (-1, 0, 1)]
            around = torch.stack([images[:, channel, r, c] for r in rows for c in columns])
            expected.append(images[:, channel, row, column] - around.mean(dim=0))
    differences = torch.stack(expected, dim=1)
    assert torch.allclose(measured, differences / differences.norm(dim=1, keepdim=True))


def test_statistics_of_transplant_do_not_depend_on_the_contrast(pair):
    transplant = interventions.Transplant(REGION)
    assert torch.allclose(transplant.statistics(0.1 * pair[0] + 3), transplant.statistics(pair[0]), atol=1e-5)


def test_statistics_depend_only_on_what_is_swapped(pair):
    """Donors that differ in nothing that an intervention takes have the same statistics, others don't."""
    hosts, donors = pair
    for swap in (interventions.Border(1), interventions.HighFrequency()):
        changed = swap.changed(hosts, donors)
        assert torch.allclose(swap.statistics(changed), swap.statistics(donors), atol=1e-9)
        assert not torch.allclose(swap.statistics(changed), swap.statistics(hosts), atol=1e-2)


def test_statistics_of_colour_are_levels_and_their_differences_between_channels(pair):
    images = pair[0]
    levels = torch.stack([images.flatten(2).sort(dim=2).values[:, :, place] for place in (0, 2, 21, 39, 41)], dim=2)
    differences = [levels[:, a] - levels[:, b] for a, b in ((0, 1), (0, 2), (1, 2))]
    assert torch.equal(interventions.Colour().statistics(images), torch.cat([levels.flatten(1), *differences], dim=1))


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
