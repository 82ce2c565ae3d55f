"""Hot patches of maps, grouped by appearance."""

import torch

from agop.auditing.matching import best_matches, cut
from agop.auditing.moving_patches import hot_corners, patch_proposals


def stickers(count=12, contained=9, side=5):
    """Noise (N,1,32,32) with a sticker at random places of some images, maps that are hot there, and the places."""
    random = torch.Generator().manual_seed(0)
    images = torch.rand(count, 1, 32, 32, generator=random)
    sticker = torch.rand(1, side, side, generator=random)
    places = torch.randint(0, 32 - side, (count, 2), generator=random)
    maps = torch.rand(count, 32, 32, generator=random) * 0.1
    for index, (row, column) in enumerate(places.tolist()):
        if index < contained:
            images[index, :, row : row + side, column : column + side] = sticker
        maps[index, row : row + side, column : column + side] += 1
    return images, maps, places, sticker


def test_hottest_patch_is_located():
    _, maps, places, _ = stickers()
    assert torch.equal(hot_corners(maps, 5)[:, 0], places)


def test_best_match_equals_a_loop_over_places():
    images, _, _, _ = stickers(count=2, contained=2)
    patches = torch.rand(2, 1, 5, 5, generator=torch.Generator().manual_seed(1))
    matches = best_matches(images, patches)
    for t, patch in enumerate(patches):
        for n in range(2):
            scores = {}
            for row in range(28):
                for column in range(28):
                    window = cut(images[n : n + 1], torch.tensor([[row, column]]), 5)[0]
                    scores[row, column] = float(torch.corrcoef(torch.stack([patch.flatten(), window.flatten()]))[0, 1])
            best = max(scores, key=scores.get)
            assert tuple(matches.corners[t, n].tolist()) == best
            torch.testing.assert_close(float(matches.correlation[t, n]), scores[best], rtol=1e-3, atol=1e-3)


def test_images_with_the_sticker_are_one_group():
    images, maps, _, sticker = stickers()
    noise = torch.rand(12, 1, 32, 32, generator=torch.Generator().manual_seed(9))
    proposal, *more = patch_proposals(0, images, maps, noise, count=2, seed=0)
    assert not more
    assert_is_the_sticker(proposal, images, sticker)


def assert_is_the_sticker(proposal, images, sticker):
    """The template is the sticker, and it is located in all images that contain it."""
    assert torch.equal(proposal.template, sticker)
    matches = proposal.matches(images)
    assert torch.equal(matches.correlation > 0.99, torch.arange(12) < 9)
    assert torch.equal(cut(images[:9], matches.corners[:9], 5), sticker.expand(9, -1, -1, -1))


def test_group_that_only_the_class_has_comes_first():
    """A smooth ramp is hot in all images of the class, but also in others."""
    images, maps, places, sticker = stickers()
    ramp = torch.linspace(0, 1, 5).expand(1, 5, 5)
    images[:, :, :5, :5], maps[:, :5, :5] = ramp, 2
    places[:9] = places[:9].clamp_min(6)
    for index, (row, column) in enumerate(places[:9].tolist()):
        images[index, :, row : row + 5, column : column + 5] = sticker
        maps[index, row : row + 5, column : column + 5] = 1
    others = torch.rand(12, 1, 32, 32, generator=torch.Generator().manual_seed(9))
    others[:, :, 9:14, 9:14] = ramp
    proposal = patch_proposals(0, images, maps, others, count=1, seed=0)[0]
    assert_is_the_sticker(proposal, images, sticker)
