"""The best place of a patch in an image, by a loop over all places."""

import torch

from agop.auditing.matching import best_matches, cut, share_alike


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
    assert share_alike(images, patches) == 3 / 8


def test_a_patch_without_structure_looks_like_nothing():
    assert share_alike(torch.rand(4, 1, 8, 8), torch.full((1, 1, 3, 3), 0.5)) == 0


def test_cut_is_the_window_at_each_corner():
    images = torch.arange(2 * 1 * 6 * 6.0).reshape(2, 1, 6, 6)
    windows = cut(images, torch.tensor([[0, 3], [2, 1]]), 3)
    assert torch.equal(windows, torch.stack([images[0, :, 0:3, 3:6], images[1, :, 2:5, 1:4]]))
