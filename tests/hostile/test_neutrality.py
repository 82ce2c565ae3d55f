"""Trainings with and without the hook end with the same bits: weights, buffers, optimizer and random state.

AGOP_HOSTILE_TRAININGS sets how many pairs of trainings are compared.
"""

import os
import random

import numpy as np
import pytest
import torch
from torch import nn

import agop
from tests import zoo
from tests.state import same

pytestmark = pytest.mark.hostile
TRAININGS = int(os.environ.get("AGOP_HOSTILE_TRAININGS", "200"))
NETWORKS = {
    **{kind: (lambda kind=kind: zoo.KINDS[kind]()) for kind in zoo.KINDS},
    "writes buffers": zoo.CountingBuffer,
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
