"""Comparison of AGOPs and of maps."""

import torch

from tests.state import same


def assert_equal_agops(first, second):
    """Bitwise equal, of the same model, and not empty."""
    assert first.count == second.count > 0
    assert torch.equal(first.diagonal, second.diagonal)
    assert same(first.provenance.model, second.provenance.model)
    assert (first.class_counts is None) == (second.class_counts is None)
    if second.class_counts is not None:
        assert torch.equal(first.class_counts, second.class_counts)
        assert same(first.class_diagonals, second.class_diagonals)


def assert_close(actual, expected):
    """Equal up to rounding, relative to the highest value."""
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
