"""Drawn digits."""

import numpy as np

from agop.scenarios.glyphs import drawn_digits


def test_digits_are_balanced_distinct_and_recognisable():
    images, labels = drawn_digits(600, np.random.default_rng(0))
    assert images.shape == (600, 28, 28)
    assert (np.bincount(labels) == 60).all()
    assert len(np.unique(images, axis=0)) == 600
    assert (images.max((1, 2)) > 200).all()
    edge = np.concatenate([images[:, [0, -1]], images[:, :, [0, -1]].transpose(0, 2, 1)], axis=1)
    assert not edge.any()
    # The nearest mean image has the right label for most: digits of a class resemble one another.
    means = np.stack([images[:300][labels[:300] == digit].mean(0) for digit in range(10)])
    distances = np.square(images[300:, None].astype(float) - means).sum((2, 3))
    assert (distances.argmin(1) == labels[300:]).mean() > 0.8
