"""Connected parts, boxes and places."""

import pytest
import torch

from agop.auditing.regions import Box, box_of, connected, overlap, place_in_words, smoothed


def flood(region):
    """Connected parts by a flood fill, pixel by pixel, largest first."""
    todo = {tuple(pixel) for pixel in region.nonzero().tolist()}
    parts = []
    while todo:
        front, part = [todo.pop()], set()
        while front:
            row, column = front.pop()
            part.add((row, column))
            near = {(row + i, column + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & todo
            todo -= near
            front += near
        parts.append(part)
    return sorted(map(len, parts), reverse=True), {frozenset(part) for part in parts}


@pytest.mark.parametrize("density", [0.1, 0.3, 0.5])
def test_connected_parts_equal_a_flood_fill(density):
    region = torch.rand(12, 9, generator=torch.Generator().manual_seed(2)) < density
    parts = connected(region)
    sizes, expected = flood(region)
    assert [int(part.sum()) for part in parts] == sizes
    assert {frozenset(map(tuple, part.nonzero().tolist())) for part in parts} == expected


def test_boxes():
    box = Box(2, 3, 5, 7)
    region = box.region((8, 9))
    assert int(region.sum()) == 12
    assert box_of(region) == box
    assert box.overlaps(Box(4, 6, 8, 9))
    assert not box.overlaps(Box(5, 3, 8, 7))
    assert overlap(region, Box(2, 3, 5, 5).region((8, 9))) == 0.5


@pytest.mark.parametrize(
    ("box", "words"), [(Box(0, 0, 4, 4), "upper left"), (Box(24, 12, 28, 16), "lower"), (Box(12, 12, 16, 16), "centre")]
)
def test_place_in_words(box, words):
    assert place_in_words(box, (28, 28)) == words


def test_smoothing_keeps_a_constant_and_spreads_a_point():
    assert torch.allclose(smoothed(torch.ones(1, 6, 6), 3), torch.ones(1, 6, 6))
    point = torch.zeros(1, 7, 7)
    point[0, 3, 3] = 9
    assert int((smoothed(point, 3)[0] == 1).sum()) == 9
