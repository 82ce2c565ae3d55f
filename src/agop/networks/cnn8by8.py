"""CNN8by8: the paper's network for XAI-TRIS."""

from __future__ import annotations

from torch import Tensor, nn


class CNN8by8(nn.Module):
    """Four blocks of convolution, ReLU and pooling, then a linear layer: 234 parameters, logits (N,2).

    The convolutions' maps are 9×9, 5×5, 3×3 and 2×2; the paper's GradCAM weighs the third, `conv3`.
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
