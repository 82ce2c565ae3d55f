"""Top eigenvectors in NumPy."""

import numpy as np
import pytest
import torch

from agop.statistic import patch_matrix
from agop.statistic.eigenvectors import Eigenvectors, patch_eigenvectors, sketch_eigenvectors, square_root


def top_eigenvectors(matrix):
    """The slow twin: all eigenvalues and eigenvectors (P,P) of the whole matrix, the largest first."""
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1], vectors.T[::-1]


def check(result, values, vectors, trace):
    assert result.shares == pytest.approx(values[: len(result.shares)] / trace)
    for vector, expected in zip(result.vectors, vectors, strict=False):
        assert abs(vector.flatten() @ expected) == pytest.approx(1)


def test_patch_eigenvectors_are_those_of_the_whole_matrix():
    random = np.random.default_rng(0)
    root, weight = random.random((5, 5)), random.normal(size=(5, 2, 3, 4)).astype(np.float32)
    flat = weight.reshape(5, -1).astype(np.float64)
    values, vectors = top_eigenvectors(flat.T @ (root.T @ root) @ flat)
    result = patch_eigenvectors(root.T @ root, weight, 3)
    assert result.vectors.shape == (3, 2, 3, 4)
    check(result, values, vectors, values.sum())
    assert patch_eigenvectors(root.T @ root, weight, 100).shares.sum() == pytest.approx(1)


def test_sketch_eigenvectors_have_shares_of_the_whole_trace():
    sketch = np.random.default_rng(0).normal(size=(3, 2, 4, 5)).astype(np.float32)
    diagonal = np.full((2, 4, 5), 7.0)
    flat = sketch.reshape(3, -1).astype(np.float64)
    values, vectors = top_eigenvectors(flat.T @ flat / 9)
    result = sketch_eigenvectors(sketch, 9, diagonal, 8)
    assert result.vectors.shape == (3, 2, 4, 5)
    check(result, values, vectors, 280)


def test_eigenvalues_that_are_rounding_errors_are_omitted():
    random = np.random.default_rng(0)
    root, weight = random.normal(size=(2, 6)), random.normal(size=(6, 1, 3, 3))
    assert len(patch_eigenvectors(root.T @ root, weight, 6).shares) == 2


def test_a_matrix_of_zeros_has_no_eigenvectors():
    zeros = np.zeros((4, 1, 2, 2))
    assert len(patch_eigenvectors(np.zeros((4, 4)), zeros, 5).vectors) == 0
    assert len(sketch_eigenvectors(zeros, 3, zeros[0], 5).shares) == 0


def test_the_square_root_of_a_tensor_is_that_of_its_array():
    root = np.random.default_rng(0).random((3, 5))
    matrix = root.T @ root
    assert square_root(matrix).T @ square_root(matrix) == pytest.approx(matrix)
    assert np.array_equal(patch_matrix.square_root(torch.from_numpy(matrix)).numpy(), square_root(matrix))


def test_shares_are_printed_in_percent_without_exponents():
    texts = {1: "100 %", 0.997: "100 %", 0.372: "37 %", 0.0521: "5.2 %", 0.00123: "0.12 %", 1e-7: "< 0.01 %"}
    vectors = Eigenvectors(np.zeros((len(texts), 1, 1, 1)), np.array(list(texts)))
    assert vectors.percents == list(texts.values())
