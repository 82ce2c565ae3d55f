"""agop.plot.show."""

import numpy as np
import pytest
import torch

import agop
from agop.errors import InputError
from agop.pictures import heat
from agop.plot.inputs import picture_of
from tests.drawn_figures import IMAGE, colour_bar, pixels


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (6, 6), (8, 6)])
def test_show_has_a_column_for_each_of_the_first_six_images(count, columns):
    images, maps = torch.rand(count, 3, 4, 4), torch.rand(count, 4, 4)
    figure = agop.plot.show(images, maps)
    assert len(figure.axes) == 2 * columns + 1
    for column in range(columns):
        axes = figure.axes[column]
        assert axes.get_title() == f"{column + 1} of {count}"
        assert np.array_equal(pixels(axes), picture_of(images[column]))


@pytest.mark.parametrize("scale", ["own", "common"])
def test_show_draws_the_maps_below_their_images(scale):
    """On its own scale every map has the brightest colour, on the common scale only the most peaked one."""
    images, maps = np.zeros((2, 4, 4, 3)), np.zeros((2, 4, 4))
    maps[0, 3, 3], maps[1, :2, 2:] = 5, 1e-9
    figure = agop.plot.show(images, maps, title="vanilla", scale=scale)
    expected = maps > 0 if scale == "own" else np.stack([maps[0] > 0, (maps[1] > 0) / 2])
    for axes, values in zip(figure.axes[2:4], expected, strict=True):
        assert np.array_equal(pixels(axes), heat.heat(values.astype(float), 1.0))
    assert [axes.get_ylabel() for axes in figure.axes[::2][:2]] == ["image", "vanilla"]
    assert colour_bar(figure).get_ylim() == (0, 1)


def test_show_names_the_targets():
    images, maps = torch.rand(3, 1, 4, 4), torch.rand(3, 4, 4)
    numbered = agop.plot.show(images, maps, targets=torch.tensor([0, 2, 1]))
    assert [axes.get_title() for axes in numbered.axes[:3]] == ["1 of 3, class 0", "2 of 3, class 2", "3 of 3, class 1"]
    named = agop.plot.show(images, maps, targets=["cat", "dog", "cat"])
    assert named.axes[1].get_title() == "2 of 3, dog"


def test_show_thins_large_images_and_averages_their_maps():
    maps = torch.ones(1, 700, 300)
    maps[0, 0, 0] = 10
    image, saliency = agop.plot.show(torch.rand(1, 3, 700, 300), maps).axes[:2]
    assert pixels(image).shape == pixels(saliency).shape == (234, 100, 3)
    assert pixels(saliency)[0, 0].tolist() == heat.heat(np.ones((1, 1)))[0, 0].tolist()
    assert (pixels(saliency) == pixels(saliency)[0, 0]).all()  # the one pixel above the others is clipped


@pytest.mark.parametrize(
    ("maps", "targets", "message"),
    [
        (torch.rand(1, 6, 9), None, "2 images and 1 maps: pass one per image"),
        (torch.rand(2, 6, 9), [1], "2 images and 1 targets"),
        (torch.rand(2, 9, 6), None, r"map has shape \(9, 6\), its image \(6, 9\)"),
        (-torch.ones(2, 6, 9), None, "has values down to -1"),
    ],
)
def test_show_rejects_empty_batches_and_maps_that_do_not_fit(maps, targets, message):
    with pytest.raises(InputError, match=message):
        agop.plot.show(IMAGE[None].expand(2, -1, -1, -1), maps, targets=targets)
    with pytest.raises(InputError, match="0 images: pass at least one"):
        agop.plot.show(IMAGE[None][:0], maps[:0])
