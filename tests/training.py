"""Batches to train on, and the paper's algorithm as a slow loop."""

import torch

from tests import zoo


def batches(count=6, size=8, seed=5):
    """Batches of random images (size,3,12,12) and labels of three classes."""
    random = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(size, 3, 12, 12, generator=random), torch.randint(0, 3, (size,), generator=random))
        for _ in range(count)
    ]


def algorithm_1(model, data, only_correct):
    """Algorithm 1 of the paper, literally: diag(M) and the number of samples in its mean."""
    total, count = torch.zeros(3, 12, 12, dtype=torch.float64), 0
    for images, labels in data:
        gradients, classes = zoo.per_sample_loop(model, images)
        for gradient, predicted, label in zip(gradients, classes, labels, strict=True):
            if only_correct and predicted != label:
                continue
            total += gradient.double() ** 2
            count += 1
    return total / count, count
