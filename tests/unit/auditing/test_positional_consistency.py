"""Positional consistency: a loop over pairs of images is the slow twin."""

import math
from itertools import permutations

import pytest
import torch
from torch import nn

from agop.auditing.pool import Half
from agop.auditing.positional_consistency import MOVING, STILL, Consistency, positional_consistency
from tests import zoo


def half(model, images):
    """The images with predicted classes as labels: all of them are correct."""
    return named(images, model(images).argmax(dim=1))


def named(images, labels):
    return Half(images, labels, tuple(map(str, range(len(labels)))))


def test_is_the_mean_cosine_between_images_corrected_for_shuffled_positions():
    model, images = zoo.build("plain"), zoo.images(6)
    measured = positional_consistency(model, half(model, images), rows=4, seed=0)
    gradients, _ = zoo.per_sample_loop(model, images)
    units = gradients.abs().flatten(2).double()
    units = units / units.flatten(1).norm(dim=1)[:, None, None]
    pairs = list(permutations(range(6), 2))
    generator = torch.Generator().manual_seed(0)
    shuffles = [torch.randperm(units.shape[2], generator=generator) for _ in range(200)]
    cosines = [float((units[i] * units[j]).sum()) for i, j in pairs]
    shuffled = [float((units[i] * units[j][:, order]).sum()) for i, j in pairs for order in shuffles]
    assert measured.cosine == pytest.approx(sum(cosines) / len(cosines))
    assert measured.shuffled == pytest.approx(sum(shuffled) / len(shuffled), abs=0.005)
    expected = (measured.cosine - measured.shuffled) / (1 - measured.shuffled)
    assert measured.corrected == pytest.approx(expected)


class Spot(nn.Module):
    """A model of two classes whose gradient is large at one pixel: a fixed one, or the brightest one."""

    def __init__(self, *, moves):
        super().__init__()
        self.weight, self.moves = nn.Parameter(torch.ones(1)), moves

    def forward(self, images):
        pixels = images.flatten(1)
        spot = pixels.amax(dim=1) if self.moves else pixels[:, 9]
        logit = self.weight * (spot + 0.01 * pixels.mean(dim=1))
        return torch.stack([-logit, logit], dim=1)


@pytest.mark.parametrize(
    ("moves", "value", "words"),
    [(False, 1.0, "looks at places"), (True, 0.0, "looks at patterns that move")],
)
def test_a_fixed_pixel_is_a_place_and_the_brightest_pixel_is_a_pattern(moves, value, words):
    images = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    model = Spot(moves=moves)
    measured = positional_consistency(model, half(model, images), rows=10, seed=0)
    assert measured.corrected == pytest.approx(value, abs=0.05)
    assert words in measured.sentence
    assert measured.images == 64


@pytest.mark.parametrize(
    ("corrected", "words"),
    [(MOVING, "patterns that move: "), ((MOVING + STILL) / 2, "partly at places"), (STILL, "looks at places: ")],
)
def test_thresholds(corrected, words):
    assert words in Consistency(corrected, 0.0, 100).sentence


def test_only_correct_images_count_and_one_image_is_not_enough():
    model, images = zoo.build("plain"), zoo.images(6)
    labels = model(images).argmax(dim=1)
    wrong = labels.clone()
    wrong[1:] = (wrong[1:] + 1) % 2
    few = positional_consistency(model, named(images, wrong), rows=4, seed=0)
    assert few.images == 1
    assert math.isnan(few.corrected)
    assert "unknown, with 1 correct image." in few.sentence
    assert few.to_dict()["corrected"] is None


def test_the_words_agree_with_the_printed_figure():
    sentence = Consistency(0.2549, 0.0, 100).sentence
    assert "looks at patterns that move" in sentence
    assert "consistency 0.25;" in sentence
