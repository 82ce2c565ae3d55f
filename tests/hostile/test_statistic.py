"""diag(M) of fit, of the hook and of merged parts equals a loop over single samples.

AGOP_HOSTILE_COMPARISONS sets how often they are compared.
"""

import os
import random
import warnings

import pytest
import torch

import agop
from tests import zoo
from tests.training import algorithm_1

pytestmark = pytest.mark.hostile
COMPARISONS = int(os.environ.get("AGOP_HOSTILE_COMPARISONS", "300"))


def of_fit(model, data, draw, **options):
    return agop.fit(model, data, **options, batch_size=draw.choice([None, 1, 3]), progress=False)


def of_hook(model, data, draw, **options):
    hook = agop.AGOPTrainingHook(model, **options)
    for batch in data:
        hook.step(*batch)
    return hook.finalize()


def of_resumed_hook(model, data, draw, **options):
    first, second = (agop.AGOPTrainingHook(model, **options) for _ in range(2))
    first.step(*data[0])
    second.load_state_dict(first.state_dict())
    for batch in data[1:]:
        second.step(*batch)
    return second.finalize()


def of_merged_parts(model, data, draw, **options):
    place = draw.randrange(1, len(data))
    return agop.merge([agop.fit(model, part, **options, progress=False) for part in (data[:place], data[place:])])


WAYS = [of_fit, of_hook, of_resumed_hook, of_merged_parts]


def batches(model, draw):
    """Batches of different sizes. The first sample of each is labelled as predicted, the others at random."""
    data = []
    for _ in range(draw.choice([2, 3, 4])):
        images = zoo.images(draw.randrange(2, 9), draw.randrange(10**6))
        labels = torch.tensor([draw.randrange(2) for _ in images])
        labels[0] = zoo.per_sample_loop(model, images[:1])[1][0]
        data.append((images, labels))
    return data


def is_right(number):
    draw = random.Random(number)
    model, only_correct = zoo.build(list(zoo.KINDS)[number % len(zoo.KINDS)], seed=number), draw.random() < 0.5
    data = batches(model, draw)
    expected, count = algorithm_1(model, data, only_correct)
    options = {"only_correct": only_correct, "per_class": draw.random() < 0.5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # merge can't check whether parts share samples
        prior = draw.choice(WAYS)(model.train(draw.random() < 0.5), data, draw, **options)
    difference = float((prior.diagonal - expected).norm() / expected.norm())
    if options["per_class"]:
        by_class = (prior.class_diagonals.nan_to_num() * prior.class_counts[:, None, None, None]).sum(dim=0) / count
        difference = max(difference, float((by_class - prior.diagonal).norm() / expected.norm()))
    return prior.count == count and difference < 1e-4


def test_comparisons_with_a_loop_over_samples():
    wrong = [number for number in range(COMPARISONS) if not is_right(number)]
    print(f"\ndiag(M) compared with a loop over samples: {COMPARISONS} tried, {COMPARISONS - len(wrong)} held")
    assert wrong == []
