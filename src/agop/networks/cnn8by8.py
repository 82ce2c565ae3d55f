"""CNN8by8: the paper's network for XAI-TRIS."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional


class CNN8by8(nn.Module):
    """Four blocks of convolution, ReLU and pooling, then a linear layer: 234 parameters, logits (N,2).

    The convolutions' maps are 9×9, 5×5, 3×3 and 2×2; the paper's GradCAM uses the third, `conv3`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=2, padding=1)
        self.conv2 = nn.Conv2d(4, 4, kernel_size=2, padding=1)
        self.conv3 = nn.Conv2d(4, 4, kernel_size=2, padding=1)
        self.conv4 = nn.Conv2d(4, 4, kernel_size=2, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = self.pool(conv(x).relu())
        logits: Tensor = self.fc(x.flatten(1))
        return logits

    @staticmethod
    def stacked_forward(weights: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Logits (S,N,2) of S networks with stacked weights (S,…), each on its own images (S,N,1,8,8).

        Convolutions are batched matrix products over all networks: at this size several times cheaper per network.
        """
        x = images.transpose(1, 2)
        for name in ("conv1", "conv2", "conv3", "conv4"):
            x = _convolved(x, weights[f"{name}.weight"], weights[f"{name}.bias"]).relu_()
            pooled = functional.max_pool2d(x.flatten(0, 1), 2)
            x = pooled.reshape(*x.shape[:2], *pooled.shape[1:])
        return torch.baddbmm(
            weights["fc.bias"][:, None], x.flatten(2).transpose(1, 2), weights["fc.weight"].transpose(1, 2)
        )


def _convolved(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """S convolutions of kernel 2 and padding 1: (S,C,N,H,W), weights (S,D,C,2,2) → (S,D,N,H+1,W+1)."""
    x = functional.pad(x, (1, 1, 1, 1))
    networks, channels, samples, height, width = x.shape
    high, wide = height - 1, width - 1
    shifted = torch.stack([x[..., i : i + high, j : j + wide] for i in (0, 1) for j in (0, 1)], dim=2)
    product = torch.baddbmm(bias[:, :, None], weight.flatten(2), shifted.reshape(networks, channels * 4, -1))
    return product.reshape(networks, -1, samples, high, wide)
