"""The best place of a patch in an image, by a loop over all places."""

import pytest
import torch

from agop.auditing.matching import best_matches, cut, share_alike
from agop.auditing.regions import smoothed


def test_patches_need_not_be_square():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(3, 2, 9, 11, generator=generator)
    patches = torch.rand(2, 2, 3, 5, generator=generator)
    matches = best_matches(images, patches)
    for t, patch in enumerate(patches):
        for n, image in enumerate(images):
            scores = {}
            for row in range(7):
                for column in range(7):
                    window = image[:, row : row + 3, column : column + 5]
                    both = torch.stack([patch.flatten(), window.flatten()])
                    scores[row, column] = float(torch.corrcoef(both)[0, 1])
            best = max(scores, key=scores.get)
            assert tuple(matches.corners[t, n].tolist()) == best
            torch.testing.assert_close(float(matches.correlation[t, n]), scores[best], rtol=1e-4, atol=1e-4)


def test_share_of_images_with_one_of_the_patches():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(8, 1, 16, 16, generator=generator)
    patches = torch.rand(2, 1, 4, 6, generator=generator)
    for place in range(3):
        images[place, :, 2 * place : 2 * place + 4, 3 * place : 3 * place + 6] = 0.5 * patches[place % 2] + 0.2
    assert share_alike(images, patches, images[:2, :, 12:16, 10:16]) == 3 / 8


def test_a_patch_without_structure_looks_like_nothing():
    images = torch.rand(4, 1, 8, 8)
    assert share_alike(images, torch.full((1, 1, 3, 3), 0.5), images[:1, :, :3, :3]) == 0


@pytest.mark.parametrize("side", [2, 3])
def test_a_small_patch_that_looks_like_some_place_of_every_image_does_not_count(side):
    images = smoothed(torch.rand(30, 20, 20, generator=torch.Generator().manual_seed(0)), 3)[:, None]
    steps = torch.arange(side)
    checker = ((steps[:, None] + steps) % 2).float()[None, None]
    assert share_alike(images, checker, images[:5, :, :side, :side]) <= 0.1
    images[:, :, 10 : 10 + side, 10 : 10 + side] = checker
    assert share_alike(images, checker, images[:5, :, :side, :side]) > 0.9


@pytest.mark.parametrize("side", [4, 6])
def test_an_object_that_moves_counts(side):
    random = torch.Generator().manual_seed(0)
    images = 0.2 * torch.rand(30, 1, 20, 20, generator=random)
    thing = torch.rand(1, 1, side, side, generator=random)
    for image, (top, left) in zip(images, torch.randint(6, 20 - side, (30, 2), generator=random), strict=True):
        image[:, top : top + side, left : left + side] = thing
    assert share_alike(images, thing, images[:5, :, :side, :side]) > 0.9


def test_cut_is_the_window_at_each_corner():
    images = torch.arange(2 * 1 * 6 * 6.0).reshape(2, 1, 6, 6)
    windows = cut(images, torch.tensor([[0, 3], [2, 1]]), 3)
    assert torch.equal(windows, torch.stack([images[0, :, 0:3, 3:6], images[1, :, 2:5, 1:4]]))
