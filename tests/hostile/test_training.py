"""Trainings with and without the hook end with the same bits; diag(M) equals a loop over single samples.

AGOP_HOSTILE_TRAININGS and AGOP_HOSTILE_COMPARISONS set how often each is compared.
"""

import os
import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import agop
from tests import zoo
from tests.state import same
from tests.zoo import algorithm_1

pytestmark = pytest.mark.hostile
TRAININGS = int(os.environ.get("AGOP_HOSTILE_TRAININGS", "200"))
COMPARISONS = int(os.environ.get("AGOP_HOSTILE_COMPARISONS", "300"))
NETWORKS = {
    **{kind: (lambda kind=kind: zoo.KINDS[kind]()) for kind in zoo.KINDS},
    "draws random numbers": zoo.NoisyInEval,
    "draws from NumPy": zoo.NumpyNoise,
    "registers its first buffer": zoo.FirstBufferInForward,
    "scales by a buffer": zoo.RunningScale,
}
OPTIMIZERS = [
    lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9, nesterov=True),
    lambda weights: torch.optim.Adam(weights, lr=0.01, amsgrad=True),
    lambda weights: torch.optim.AdamW(weights, lr=0.01, weight_decay=0.1),
    lambda weights: torch.optim.RMSprop(weights, lr=0.001, centered=True),
]


def trained(network, optimizer, seed, options, place, folder):
    """The state after five steps, with a hook before or after the optimizer's step, or without one (None)."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    model = NETWORKS[network]().train()
    steps = optimizer(model.parameters())
    hook = agop.AGOPTrainingHook(model, only_correct=False, snapshot_every=2, snapshot_dir=folder, **options)
    for _ in range(5):
        images, labels = torch.randn(6, 3, 12, 12), torch.randint(0, 2, (6,))
        logits = zoo.plain_logits(model(images), 6)
        steps.zero_grad()
        loss = nn.functional.cross_entropy(logits, labels) if logits.shape[1] > 1 else logits.square().mean()
        loss.backward()
        if place == "before":
            hook.step(images, labels)
        steps.step()
        if place == "after":
            hook.step(images, labels)
    draws = torch.get_rng_state(), random.getstate(), np.random.rand(3).tolist()
    return {"model": model.state_dict(), "optimizer": steps.state_dict(), "draws": draws}


def test_trainings_with_and_without_the_hook(tmp_path):
    draw, different = random.Random(TRAININGS), []
    for number in range(TRAININGS):
        network, optimizer = list(NETWORKS)[number % len(NETWORKS)], draw.choice(OPTIMIZERS)
        options = {
            "every": draw.choice([1, 2]),
            "per_class": draw.random() < 0.5,
            "nan": draw.choice(["raise", "skip"]),
        }
        place = draw.choice(["before", "after"])
        arguments = (network, optimizer, number, options)
        without, with_hook = (trained(*arguments, where, tmp_path) for where in (None, place))
        if not same(without, with_hook):
            different.append(f"{network}, {place}, {options}, seed {number}")
    held = TRAININGS - len(different)
    print(f"\ntrainings of {len(NETWORKS)} networks with and without the hook: {TRAININGS} tried, {held} held")
    assert different == []


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
