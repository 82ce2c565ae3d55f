"""MLP8by8: XAI-TRIS's fully connected network for 8×8 images."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class MLP8by8(nn.Module):
    """Linear layers 64-32-16-8-2 with ReLU between them: 2,762 parameters, logits (N,2) of images (N,1,8,8)."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 16)
        self.fc3 = nn.Linear(16, 8)
        self.fc4 = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in (self.fc1, self.fc2, self.fc3):
            x = layer(x).relu()
        logits: Tensor = self.fc4(x)
        return logits

    @staticmethod
    def stacked_forward(weights: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Logits (S,N,2) of S networks with stacked weights (S,…), each on its own images (S,N,1,8,8)."""
        x = images.flatten(2)
        for name in ("fc1", "fc2", "fc3"):
            x = _linear(x, weights, name).relu_()
        return _linear(x, weights, "fc4")


def _linear(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    """S linear layers: (S,N,D) with weights (S,E,D) → (S,N,E)."""
    return torch.baddbmm(weights[f"{name}.bias"][:, None], x, weights[f"{name}.weight"].transpose(1, 2))
