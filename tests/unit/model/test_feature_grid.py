"""Grids of tokens."""

import pytest
import torch

from agop.errors import LayerError
from agop.model.feature_grid import as_grid, token_grid


@pytest.mark.parametrize(
    ("tokens", "size", "grid"),
    [(197, (224, 224), (14, 14)), (198, (224, 224), (14, 14)), (196, (224, 224), (14, 14)), (261, (224, 224), (16, 16)),
     (49, (224, 224), (7, 7)), (1 + 8 * 12, (64, 96), (8, 12)), (10, (12, 12), (3, 3))],
)  # fmt: skip
def test_token_grid_follows_the_image_shape(tokens, size, grid):
    assert token_grid(tokens, torch.Size(size)) == grid
    with pytest.raises(LayerError, match="5000 tokens"):
        token_grid(5000, torch.Size((7, 1000)))


def test_tokens_are_placed_row_by_row_after_the_class_token():
    tokens = torch.arange(10.0).reshape(1, 10, 1)
    assert as_grid(tokens, 1, torch.Size((12, 12)))[0, 0].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
