"""Comparison of AGOPs, maps and trained models."""

import torch

from tests.state import same, state_of


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


def trained_state(model):
    """The state to compare between two models: without ids of buffers and version counters of parameters."""
    state = state_of(model)
    state["buffers"] = [(name, value) for name, _, value in state["buffers"]]
    state["parameters"] = [(value, trainable) for value, trainable, _ in state["parameters"]]
    return state
